// tulle: the command line. See docs/cli.md.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <new>

#include "base/json.hpp"
#include "cli/command.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {

std::atomic<bool> interrupted = false;

namespace {

constexpr Command kCommands[] = {
    {"generate", "prompt -> video, sparse or dense, with a report", declare_generate},
    {"calibrate", "model and captions -> profile: which blocks can matter, and how much each head needs; resumable",
     declare_calibrate},
    {"inspect", "any file of ours (model, mask, profile, policy, report, clips) in words, and as a picture",
     declare_inspect},
    {"bench", "studies and measurements of this build on this machine", declare_bench},
    {"doctor", "what this build and machine can do, and what stands in the way", declare_doctor},
};

// The first Ctrl-C asks for a clean end after the current step; the second ends at once.
void on_interrupt(int) {
  if (interrupted.exchange(true)) std::_Exit(130);
}

bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

int tell(const Error& error, bool json) {
  fmt::print(stderr, "tulle: {}\n", error.what());
  if (json) {
    const Json object = {{"error", {{"code", to_string(error.code())}, {"message", error.what()}}}};
    fmt::print("{}\n", object.dump());
  }
  return exit_code(error.code());
}

int run(int argc, char** argv) {
  CLI::App app("Tulle: sparse attention for video diffusion transformers");
  app.set_version_flag("--version", fmt::format("tulle {} ({})", version(), commit()));
  app.require_subcommand(1);
  app.footer("tulle COMMAND --help shows a command's options and an example.");
  std::map<CLI::App*, std::function<int()>> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.declare(*sub);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} (tulle COMMAND --help shows the options)", e.what()));
  }
  return actions.at(app.get_subcommands().front())();
}

}  // namespace

int exit_code(ErrorCode code) {
  if (code == ErrorCode::kInvalidArgument) return 2;
  return code == ErrorCode::kCancelled ? 130 : 1;
}

}  // namespace tulle::cli

int main(int argc, char** argv) {
  using namespace tulle;
  std::signal(SIGINT, cli::on_interrupt);
  const bool json = cli::wants_json(argc, argv);
  try {
    return cli::run(argc, argv);
  } catch (const Error& e) {
    return cli::tell(e, json);
  } catch (const std::bad_alloc&) {
    return cli::tell(Error(ErrorCode::kOutOfMemory, "out of memory: use a smaller grid or fewer ranks"), json);
  } catch (const std::exception& e) {
    return cli::tell(Error(ErrorCode::kInternal, fmt::format("unexpected failure: {}", e.what())), json);
  }
}
