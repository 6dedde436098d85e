// One video from one prompt: ranks, engine, model, sampler and codec wired together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tulle/engine.hpp"
#include "tulle/model.hpp"
#include "tulle/report.hpp"

namespace tulle::cli {

// What is loaded once and shared by all runs and ranks.
struct Loaded {
  std::string folder;
  WanModel model;
  PromptEncoder prompts;
  Codec codec;
  SamplerOptions sampler;  // the model's own defaults (sampler.json)
};

// auto (what is best here), f32 or bf16. Throws Error(kInvalidArgument) for anything else.
Precision parse_precision(const std::string& text);

Loaded load_model(const std::string& folder, Precision precision);

// The profile of a grid that stands in a model's folder, profiles/<grid>.bin; empty where there is none.
std::string shipped_profile(const std::string& model, const TokenGrid& grid);

// A profile for `loaded`, or null for an empty path. Throws Error(kIo | kBadFile) when it cannot be read, is damaged,
// or is of another model.
std::shared_ptr<const Profile> load_profile(const std::string& path, const Loaded& loaded);

struct VideoRequest {
  std::string prompt;
  TokenGrid grid;
  Policy policy;
  std::shared_ptr<const Profile> profile;  // for policies that need one
  SamplerOptions sampler;
  int ranks = 1;
  int threads = 1;  // of the whole process, divided among ranks
  std::uint64_t seed = 0;
  bool check_finite = false;
  bool keep_masks = false;
  bool quiet = false;
  std::string label;                               // of the progress bar
  AttendObserver observer;                         // of every rank's attention calls; ranks call it at the same time
  std::function<void(std::int32_t done)> on_step;  // after each step of rank 0
};

struct HeadMask {
  std::int32_t layer = 0;
  std::int64_t head = 0;
  BlockMask mask;  // one head
};

struct VideoResult {
  Video video;
  ReportTimes time;                // attention, selection and communication: mean over ranks
  std::vector<EngineStats> stats;  // per rank
  Plan plan;
  std::vector<std::vector<std::int64_t>> bytes_per_edge;  // [from][to]
  std::vector<double> rank_attention_s;
  std::vector<TimelineSpan> timeline;
  std::vector<HeadMask> masks;  // of the last conditional pass
};

// Bytes that this process needs at the peak of a run: what is resident now (the loaded model and its libraries) and
// what the run adds. Call it before the run.
std::int64_t predicted_memory(const Loaded& loaded, const VideoRequest& request);

// Throws Error(kOutOfMemory) before any allocation when the prediction exceeds what the machine has free,
// Error(kCancelled) after Ctrl-C, and whatever the rooms below throw.
VideoResult run_video(const Loaded& loaded, const VideoRequest& request);

}  // namespace tulle::cli
