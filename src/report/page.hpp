// The fixed parts of report.html. The page is: head + style, body, the data as JSON, script.
#pragma once

#include <string_view>

namespace tulle::page {

extern const std::string_view kStyle;   // CSS
extern const std::string_view kBody;    // HTML inside <body>
extern const std::string_view kScript;  // JavaScript; reads the element #data

}  // namespace tulle::page
