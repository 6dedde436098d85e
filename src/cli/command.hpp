// What all commands share: one file a command, exit codes, and how errors are told.
//
// Exit codes: 0 ok, 1 failed, 2 usage, 130 interrupted. An error is one sentence on stderr; with --json also an object
// {"error": {"code", "message"}} on stdout.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tulle/error.hpp"

namespace tulle::cli {

// Declares the options of a command on `app`; the returned function runs it and gives the exit code.
struct Command {
  const char* name;
  const char* help;
  std::function<int()> (*declare)(CLI::App& app);
};

std::function<int()> declare_generate(CLI::App& app);
std::function<int()> declare_calibrate(CLI::App& app);
std::function<int()> declare_inspect(CLI::App& app);
std::function<int()> declare_doctor(CLI::App& app);
std::function<int()> declare_bench(CLI::App& app);

// Set by Ctrl-C. Long loops look at it between steps and throw Error(kCancelled).
extern std::atomic<bool> interrupted;

int exit_code(ErrorCode code);

}  // namespace tulle::cli
