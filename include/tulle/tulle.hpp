// Tulle: sparse attention for video diffusion transformers, on one device and on many.
//
//     grid ──► select ──► plan ──► run ──► result + report
//
// This umbrella includes all public headers. Embedders of attention alone need grid, mask, policy and attention.
#pragma once

#include "tulle/attention.hpp"
#include "tulle/engine.hpp"
#include "tulle/error.hpp"
#include "tulle/fabric.hpp"
#include "tulle/grid.hpp"
#include "tulle/mask.hpp"
#include "tulle/model.hpp"
#include "tulle/plan.hpp"
#include "tulle/policy.hpp"
#include "tulle/profile.hpp"
#include "tulle/rank_map.hpp"
#include "tulle/report.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"
#include "tulle/version.hpp"
