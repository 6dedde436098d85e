// Env: the only place that reads environment variables. `tulle doctor` prints this table.
#pragma once

#include <span>
#include <string>

namespace tulle {

struct EnvVariable {
  const char* name;
  const char* type;
  const char* fallback;
  const char* help;
};

struct Env {
  std::string log_level;     // TULLE_LOG
  int threads = 0;           // TULLE_THREADS
  double timeout_s = 0;      // TULLE_TIMEOUT_S
  std::string video_module;  // TULLE_VIDEO_MODULE
  bool no_color = false;     // NO_COLOR
  std::string path;          // PATH, read by `tulle doctor`
};

// Read once, at first use; later changes of the environment are not seen. Throws Error(kInvalidArgument)
// naming the variable when a value does not parse.
const Env& env();

// The documented variables, for help texts.
std::span<const EnvVariable> env_variables();

}  // namespace tulle
