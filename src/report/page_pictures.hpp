// What report.html knows of masks and rank maps, as JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "tulle/report.hpp"

namespace tulle::page {

std::string base64(std::string_view bytes);

// The masks that the page shows, each with its head's rank map where the report has one, and how many were left out:
// {"masks": [...], "masks_left_out": n, "blocks": {...} or null}; docs/formats/report.md lists the keys. Pictures of
// more than `largest` bytes are thinned out evenly. Throws Error(kInvalidArgument) for pictures that do not fit their
// sizes, and for rank maps that are not of the masks' blocks.
OrderedJson pictures(const RunReport& report, std::size_t largest);

}  // namespace tulle::page
