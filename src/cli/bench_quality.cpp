// tulle bench quality: runs the quality study, and shows it.
#include <fmt/format.h>

#include <charconv>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/named.hpp"
#include "cli/command.hpp"
#include "cli/study_masks.hpp"
#include "cli/study_plan.hpp"
#include "cli/study_results.hpp"

namespace tulle::cli {
namespace {

struct Options {
  StudySetup setup;
  StudyChoice choice;
  std::string shard = "0/1", ablation, record;
  bool quick = false, checker = false, find_knobs = false, table_only = false, json = false;
};

std::size_t whole_number(std::string_view text, const std::string& shard) {
  std::size_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  require(!text.empty() && end.ec == std::errc() && end.ptr == text.data() + text.size(),
          "--shard {}: write it as 0/4, the first of four", shard);
  return value;
}

void read_shard(const std::string& text, StudySetup& setup) {
  const std::size_t slash = text.find('/');
  require(slash != std::string::npos, "--shard {}: write it as 0/4, the first of four", text);
  setup.shard = whole_number(std::string_view(text).substr(0, slash), text);
  setup.shards = whole_number(std::string_view(text).substr(slash + 1), text);
  require(setup.shard < setup.shards, "--shard {}: the first number must be below the second", text);
}

std::vector<StudyPart> plan_of(const Options& o, const Study& study) {
  if (!o.ablation.empty()) return ablation_plan(o.ablation, o.choice, study.profiles());
  return o.checker ? checker_plan(o.choice) : study_plan(o.choice);
}

// What the records say of how they were made: the choices, without paths.
std::string command_of(const Options& o) {
  std::string text = "tulle bench quality";
  if (!o.ablation.empty()) text += " --ablation " + o.ablation;
  if (o.checker) text += " --checker";
  const StudyChoice& c = o.choice;
  if (!c.grids.empty()) text += fmt::format(" --grid {}", fmt::join(c.grids, ","));
  if (!c.presets.empty()) text += fmt::format(" --preset {}", fmt::join(c.presets, ","));
  if (!c.densities.empty()) text += fmt::format(" --density {}", fmt::join(c.densities, ","));
  if (c.captions > 0) text += fmt::format(" --count {}", c.captions);
  if (c.seeds > 0) text += fmt::format(" --seeds {}", c.seeds);
  return text;
}

void check_options(const Options& o) {
  require(o.ablation.empty() || !o.checker, "--ablation and --checker are two studies: run one after the other");
  require(!o.table_only || !o.find_knobs, "--table runs nothing, and --find-knobs runs searches: give one of them");
}

std::vector<StudyLine> run(const Options& o) {
  if (o.table_only) return read_study_lines(o.setup.out);
  Study study(o.setup);
  const std::vector<StudyPart> plan = plan_of(o, study);
  if (o.find_knobs)
    study.find_knobs(plan);
  else
    study.run(plan);
  return study.lines();
}

struct NamedAblation {
  const char* name;
  const char* help;
};

std::vector<NamedAblation> all_ablations() {
  std::vector<NamedAblation> all;
  for (const Ablation& a : ablations()) all.push_back({a.name, a.help});
  for (const MaskAblation& a : mask_ablations()) all.push_back({a.name, a.help});
  return all;
}

int list_ablations() {
  for (const NamedAblation& a : all_ablations()) fmt::print("{:<10} {}\n", a.name, a.help);
  return 0;
}

int show(const Options& o, const std::string& table, const std::string& records) {
  if (!o.record.empty()) write_file_atomic(o.record, records);
  fmt::print("{}", o.json ? records : table);
  return 0;
}

int bench_masks(const MaskAblation& ablation, const Options& o) {
  const bool study_only = o.quick || o.find_knobs || o.table_only || o.setup.shards > 1 || !o.choice.presets.empty() ||
                          !o.choice.policies.empty();
  require(!study_only,
          "--ablation {} makes dense runs only, in one process, and keeps no lines: leave out --quick, --find-knobs, "
          "--table, --shard, --preset and --policy",
          ablation.name);
  const MaskFindings found = ablation.run(o.setup, o.choice);
  return show(o, mask_table(found), mask_records(found, command_of(o)));
}

int bench_quality(Options o) {
  if (o.ablation == "list") return list_ablations();
  if (!o.ablation.empty()) find_named(all_ablations(), o.ablation, "ablation");
  check_options(o);
  read_shard(o.shard, o.setup);
  o.setup.quiet = o.setup.quiet || o.json;
  if (const MaskAblation* masks = look_up(mask_ablations(), o.ablation)) return bench_masks(*masks, o);
  if (o.quick) {
    o.choice.captions = o.choice.seeds = 1;
    o.choice.densities = {0.25};
    o.choice.presets = {"dfsattn", "west+fast", "topp", "tulle"};
    if (o.choice.grids.empty()) o.choice.grids = {"9x16x16"};
  }
  const std::vector<StudyRow> rows = study_rows(run(o));
  return show(o, study_table(rows), study_records(rows, command_of(o)));
}

void declare_study(CLI::App& app, StudySetup& s, std::string& shard) {
  app.add_option("--model", s.model, "model folder")->capture_default_str();
  app.add_option("--profile", s.profiles,
                 "profiles of the model (tulle calibrate), one of each grid (default: the model's own)")
      ->delimiter(',');
  app.add_option("--captions", s.captions, "captions with their objects, .jsonl (default: the model's heldout.jsonl)");
  app.add_option("--out", s.out, "folder of the study; what stands there is not run again")->capture_default_str();
  app.add_option("--shard", shard, "this process's share of the captions and seeds, e.g. 0/4")->capture_default_str();
  app.add_option("--threads", s.threads, "threads (default: all cores)");
  app.add_flag("--quiet", s.quiet, "no progress");
}

void declare_choice(CLI::App& app, StudyChoice& c) {
  app.add_option("--grid", c.grids, "token grids (default: 9x16x16 and 13x20x24)")->delimiter(',');
  app.add_option("--preset", c.presets, "presets (default: all at 9x16x16, four at 13x20x24); base of an ablation")
      ->delimiter(',');
  app.add_option("--density", c.densities, "densities of the whole run (default: 0.55,0.40,0.25,0.15, and 0.40,0.25)")
      ->delimiter(',');
  app.add_option("--count", c.captions, "captions, the first of the file (default: 8, and 4)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seeds", c.seeds, "noise seeds of each caption (default: 2, and 1)")->check(CLI::PositiveNumber);
  app.add_option("--policy", c.policies, "further rows: .json policies as they are")->delimiter(',');
}

void declare_quality(CLI::App& app, const std::shared_ptr<Options>& o) {
  declare_study(app, o->setup, o->shard);
  declare_choice(app, o->choice);
  app.add_option("--ablation", o->ablation, "a study of one question instead; list names them");
  app.add_flag("--checker", o->checker, "instead: dense and tulle at density 0.15 on 100 captions, for the checker");
  app.add_flag("--find-knobs", o->find_knobs, "only search for the top_p of each density; once, before shards run");
  app.add_option("--record", o->record, "write records there (results/quality.json)");
  app.add_flag("--quick", o->quick, "one caption, one density, four presets");
  app.add_flag("--table", o->table_only, "run nothing, show what stands in --out");
  app.add_flag("--json", o->json, "records on standard output");
  app.footer(
      "Example:\n  tulle bench quality --grid 9x16x16 --preset dfsattn,tulle --density 0.25\n"
      "Stop it with Ctrl-C and run it again: it goes on where it was.");
}

}  // namespace

std::function<int()> declare_bench(CLI::App& app) {
  app.require_subcommand(1);
  auto o = std::make_shared<Options>();
  declare_quality(*app.add_subcommand("quality", "videos of every preset against dense ones of the same seed"), o);
  return [o] { return bench_quality(*o); };
}

}  // namespace tulle::cli
