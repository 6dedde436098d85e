// bench_attention: speed of attend_cpu over the cases of tests/attend/attention_cases.hpp.
//
//     bench_attention                      Google Benchmark, one benchmark a case
//     bench_attention --record FILE        medians of interleaved runs, written as records to FILE
//     bench_attention --vectors            bf16 on vectors alone where the processor has a matrix unit, too
//
// A record's value is GFLOP/s on kept pairs. Baseline of a dense case: the multiply-add peak that a loop in registers
// reaches on the same threads; of a sparse case: the dense case of the same shape and type. Both are measured in the
// same rounds, in turn, so that a busy machine slows all of them alike.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "attend/attention_cases.hpp"
#include "attend/shape.hpp"
#include "attend/tiles.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/system.hpp"
#include "fma_peak.hpp"
#include "tulle/version.hpp"

namespace tulle::bench {
namespace {

using cases::AttentionCase;
using cases::Problem;

struct Options {
  std::string record, filter;
  int threads = 0;
  int rounds = 15;
  std::string command = "bench_attention";
};

std::vector<AttentionCase> speed_cases(const std::string& filter) {
  auto all = cases::attention_cases();
  std::erase_if(all, [&](const AttentionCase& c) { return !c.speed || c.name.find(filter) == std::string::npos; });
  return all;
}

// The dense case that a sparse one is measured against: the same in all but the mask.
AttentionCase dense_of(AttentionCase c) {
  c.density = -1;
  c.name = fmt::format("dense_{}x{}x{}{}", c.heads, c.q_video, c.dim, c.dtype == DType::kBf16 ? "_bf16" : "");
  return c;
}

double seconds_of(Problem& problem, const Threads& threads) {
  const double begin = now_seconds();
  attend_cpu(problem.args(), threads);
  return now_seconds() - begin;
}

struct Series {
  std::vector<double> values;

  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  // Half the distance between the quartiles, over the median.
  double spread() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / 2 / median();
  }
};

OrderedJson record_of(const Options& options, const AttentionCase& c, const Series& value, const std::string& baseline,
                      const Series& base, int threads) {
  const auto rounded = [](double x) { return std::round(x * 1e4) / 1e4; };
  return {{"bench", "attention_cpu"},
          {"name", c.name},
          {"metric", "rate on kept pairs"},
          {"unit", "GFLOP/s"},
          {"better", "higher"},
          {"value", rounded(value.median())},
          {"spread", rounded(value.spread())},
          {"n", value.values.size()},
          {"baseline", baseline},
          {"baseline_value", rounded(base.median())},
          {"ratio", rounded(value.median() / base.median())},
          {"machine",
           fmt::format("{}, {} cores, {}, {} threads", cpu_name(), cpu_count(), attention_target(c.dtype), threads)},
          {"commit", commit()},
          {"date", utc_date()},
          {"command", options.command}};
}

// Cases of one shape and type are measured in turn with their dense case and the peak, round after round.
void record_shape(const Options& options, const std::vector<AttentionCase>& shape, const Threads& threads,
                  OrderedJson& records) {
  std::vector<Problem> problems;
  for (const AttentionCase& c : shape) problems.push_back(cases::make_problem(c));
  std::vector<Series> rates(shape.size());
  Series peak;
  for (int round = -1; round < options.rounds; ++round) {
    const double fma = fma_peak_flops(threads);
    if (round >= 0) peak.values.push_back(fma / 1e9);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const double s = seconds_of(problems[i], threads);
      if (round >= 0) rates[i].values.push_back(attention_flops(problems[i].args()) / s / 1e9);
    }
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool dense = i == 0;
    records.push_back(record_of(options, shape[i], rates[i], dense ? "multiply-add peak, in registers" : shape[0].name,
                                dense ? peak : rates[0], threads.width()));
    const OrderedJson& r = records.back();
    fmt::print("{:36} {:8.1f} GFLOP/s  +-{:4.1f} %  {:.3f} of {} ({:.1f})\n", shape[i].name, r["value"].get<double>(),
               100 * r["spread"].get<double>(), r["ratio"].get<double>(), r["baseline"].get<std::string>(),
               r["baseline_value"].get<double>());
  }
}

void record(const Options& options) {
  std::map<std::string, std::vector<AttentionCase>> shapes;  // the dense case of each comes first
  for (const AttentionCase& c : speed_cases(options.filter)) {
    auto& shape = shapes[dense_of(c).name];
    if (shape.empty()) shape.push_back(dense_of(c));
    if (c.name != shape.front().name) shape.push_back(c);
  }
  const Threads threads(options.threads);
  OrderedJson records = OrderedJson::array();
  for (const auto& [name, shape] : shapes) record_shape(options, shape, threads, records);
  write_file_atomic(options.record, records.dump(1) + "\n");
}

void run_case(benchmark::State& state, const AttentionCase& c, int width) {
  const Threads threads(width);
  Problem problem = cases::make_problem(c);
  for (auto _ : state) attend_cpu(problem.args(), threads);
  state.counters["flops"] =
      benchmark::Counter(attention_flops(problem.args()), benchmark::Counter::kIsIterationInvariantRate);
}

void run_peak(benchmark::State& state, int width) {
  const Threads threads(width);
  double flops = 0;
  for (auto _ : state) flops = std::max(flops, fma_peak_flops(threads));
  state.counters["flops"] = flops;
}

// Takes our own options out of argv; the rest is Google Benchmark's.
Options take_options(int& argc, char** argv) {
  Options options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) fail(ErrorCode::kInvalidArgument, "bench_attention: {} needs a value", arg);
      options.command += " " + arg + " " + argv[i + 1];
      return std::string(argv[++i]);
    };
    if (arg == "--record")
      options.record = value();
    else if (arg == "--filter")
      options.filter = value();
    else if (arg == "--threads")
      options.threads = std::stoi(value());
    else if (arg == "--rounds")
      options.rounds = std::max(1, std::stoi(value()));
    else if (arg == "--vectors")
      cpu::use_tile_unit(cpu::TileUnit::kNone), options.command += " --vectors";
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  return options;
}

void run_google_benchmark(const Options& options, int argc, char** argv) {
  benchmark::RegisterBenchmark("fma_peak", run_peak, options.threads)->UseRealTime();
  for (const AttentionCase& c : speed_cases(options.filter)) {
    benchmark::RegisterBenchmark(c.name.c_str(), run_case, c, options.threads)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    fail(ErrorCode::kInvalidArgument,
         "bench_attention: unknown option; --help lists Google Benchmark's, the head of this file ours");
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace tulle::bench

int main(int argc, char** argv) {
  try {
    const auto options = tulle::bench::take_options(argc, argv);
    if (options.record.empty())
      tulle::bench::run_google_benchmark(options, argc, argv);
    else
      tulle::bench::record(options);
    return 0;
  } catch (const tulle::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return e.code() == tulle::ErrorCode::kInvalidArgument ? 2 : 1;
  }
}
