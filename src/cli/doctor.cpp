// tulle doctor: what this build and machine can do, and what stands in the way.
#include <fmt/format.h>

#include "base/env.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "base/system.hpp"
#include "cli/command.hpp"
#include "device/driver.hpp"
#include "tulle/attention.hpp"
#include "tulle/model.hpp"
#include "tulle/report.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {
namespace {

struct Finding {
  std::string what, state, detail;  // state: "ok", "missing", "off"
};

Finding cpu() { return {"processor", "ok", fmt::format("{}, {} cores", cpu_name(), cpu_count())}; }

Finding memory() { return {"memory", "ok", human_bytes(static_cast<double>(available_memory())) + " free"}; }

Finding attention() {
  return {"attention on CPU", "ok",
          fmt::format("Highway, {} (bf16: {})", attention_target(), attention_target(DType::kBf16))};
}

Finding products() {
  const bool bf16 = default_precision() == Precision::kBf16;
  return {"matrix products on CPU", "ok",
          bf16 ? "oneDNN, bf16 (the processor multiplies bf16 in hardware)"
               : "oneDNN, f32 (no AMX or AVX-512 BF16 here; --precision bf16 works, without gain)"};
}

Finding video() {
  const std::string problem = mp4_problem();
  return {"MP4 files", problem.empty() ? "ok" : "missing", problem.empty() ? "the libav module loads" : problem};
}

Finding gpu() {
  const DriverFacts facts = ask_cuda_driver();
  if (!facts.problem.empty()) return {"CUDA", facts.found ? "missing" : "off", facts.problem};
  std::string text = fmt::format("driver for CUDA {}.{}", facts.version / 1000, facts.version % 1000 / 10);
  for (const GpuFacts& g : facts.gpus) {
    text += fmt::format("; {} (sm_{}{}, {} multiprocessors, {})", g.name, g.compute_major, g.compute_minor,
                        g.multiprocessors, human_bytes(static_cast<double>(g.memory_bytes)));
  }
  return {"CUDA", facts.gpus.empty() ? "missing" : "ok", text + "; models run on the CPU in this version"};
}

std::vector<Finding> examine() { return {cpu(), memory(), attention(), products(), video(), gpu()}; }

int doctor(bool json) {
  const std::vector<Finding> findings = examine();
  if (json) {
    OrderedJson out = {{"version", version()}, {"commit", commit()}, {"findings", OrderedJson::array()}};
    for (const Finding& f : findings) {
      out["findings"].push_back({{"what", f.what}, {"state", f.state}, {"detail", f.detail}});
    }
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("tulle {} ({})\n\n", version(), commit());
  for (const Finding& f : findings) fmt::print("{:<8} {:<24} {}\n", f.state, f.what, f.detail);
  fmt::print("\nEnvironment variables\n");
  for (const EnvVariable& v : env_variables()) fmt::print("  {:<20} {} (default: {})\n", v.name, v.help, v.fallback);
  return 0;
}

}  // namespace

std::function<int()> declare_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "machine-readable");
  app.footer("Example:\n  tulle doctor");
  return [json] { return doctor(*json); };
}

}  // namespace tulle::cli
