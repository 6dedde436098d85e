#include "cli/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "cli/captions.hpp"
#include "cli/run_report.hpp"
#include "cli/study_knobs.hpp"
#include "cli/study_recall.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTrials = 8;  // of a knob that is found by trial

// Of what a key stands for. What rounds otherwise draws another video, and meets the same density.
constexpr int kVideoVersion = 3, kKnobVersion = 2;

std::string hash_text(const std::string& text) {
  return fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(text))));
}

// A line without an end in this shard's own file, left by an interruption: its video is drawn again.
void cut_partial_line(const fs::path& path) {
  if (!fs::exists(path)) return;
  const std::string text = read_file(path, std::size_t{256} << 20);
  const std::size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0
  if (whole < text.size()) write_file_atomic(path, text.substr(0, whole));
}

fs::path lines_path(const StudySetup& s) { return fs::path(s.out) / fmt::format("lines-{}.jsonl", s.shard); }

std::int32_t permille_of(const std::optional<double>& density) {
  return static_cast<std::int32_t>(std::lround(1000 * density.value_or(0)));
}

std::int32_t read_top_p(const fs::path& path) {
  const std::string where = path.string();
  const Json json = parse_json(read_file(path, 1 << 16), where).value();
  const auto top_p = json_need<std::int32_t>(json, "top_p", where);
  if (top_p < 1 || top_p > 1000) fail(ErrorCode::kBadFile, "{}: top_p is {}; it is in [1, 1000]", where, top_p);
  return top_p;
}

bool read_video(const fs::path& path, Video& video, std::size_t count) {
  if (!fs::exists(path) || fs::file_size(path) != count * sizeof(float)) return false;
  const std::string bytes = read_file(path, count * sizeof(float));
  video.rgb.resize(count);
  std::memcpy(video.rgb.data(), bytes.data(), bytes.size());
  return true;
}

bool read_times(const fs::path& path, double& attention_s, double& dit_s) {
  if (!fs::exists(path)) return false;
  const std::string where = path.string();
  const Json json = parse_json(read_file(path, 1 << 16), where).value();
  attention_s = json_need<double>(json, "attention_s", where), dit_s = json_need<double>(json, "dit_s", where);
  return true;
}

}  // namespace

Study::Study(const StudySetup& setup) : setup_(setup), loaded_(load_model(setup.model, default_precision())) {
  for (const std::string& path : setup_.profiles) add_profile(path);
  prepare_output_folder(setup_.out);
  for (const char* folder : {"dense", "knobs"}) fs::create_directories(fs::path(setup_.out) / folder);
  cut_partial_line(lines_path(setup_));
  lines_ = read_study_lines(setup_.out);
}

void Study::add_profile(const std::string& path) {
  profiles_.push_back(load_profile(path, loaded_));
  profile_hashes_[profiles_.back().get()] = hash_text(serialize(*profiles_.back()));
}

bool Study::has_profile(const TokenGrid& grid) const {
  return std::ranges::any_of(profiles_, [&](const auto& p) { return p->q().sequence.grid == grid; });
}

void Study::check(const std::vector<StudyPart>& parts) {
  int captions = 0;
  for (const StudyPart& part : parts) {
    captions = std::max(captions, part.captions);
    if (const std::string path = shipped_profile(setup_.model, part.grid); !path.empty() && !has_profile(part.grid))
      add_profile(path);
    for (const Wish& wish : part.wishes) profile_for(part, wish);
  }
  if (std::ssize(captions_) >= captions) return;
  const fs::path path = captions_path(setup_.model, setup_.captions);
  const std::string text = read_file(path, std::size_t{64} << 20);
  captions_.clear();
  for (std::size_t at = 0; at < text.size() && std::ssize(captions_) < captions;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}, line {}", path.string(), captions_.size() + 1);
    const Json line = parse_json(std::string_view(text).substr(at, end - at), where).value();
    Caption c{json_need<std::string>(line, "caption", where), {}};
    for (const Json& o : json_need<Json>(line, "objects", where)) {
      c.objects.push_back({json_need<std::string>(o, "colour", where), json_need<std::string>(o, "shape", where),
                           json_need<std::string>(o, "motion", where)});
    }
    captions_.push_back(std::move(c));
    at = end + 1;
  }
  require(std::ssize(captions_) == captions, "{} has {} captions and {} were asked for: lower --count", path.string(),
          captions_.size(), captions);
}

std::shared_ptr<const Profile> Study::profile_for(const StudyPart& part, const Wish& wish) const {
  if (wish.profile != nullptr) return wish.profile;
  if (!needs_profile(wish.preset.policy)) return nullptr;
  std::shared_ptr<const Profile> found;
  for (const auto& profile : profiles_) {
    if (profile->q().sequence.grid != part.grid) continue;
    require(found == nullptr, "two profiles are of grid {}: give one of each grid", to_string(part.grid));
    found = profile;
  }
  require(found != nullptr,
          "preset \"{}\" needs a profile of grid {}: make one with tulle calibrate --grid {}, name it with --profile",
          wish.preset.name, to_string(part.grid), to_string(part.grid));
  return found;
}

std::vector<Study::Pair> Study::pairs_of(const StudyPart& part) const {
  std::vector<Pair> pairs;
  const int seeds = part.seed_is_caption ? 1 : part.seeds;
  for (int seed = 0; seed < seeds; ++seed) {
    for (std::size_t caption = 0; caption < static_cast<std::size_t>(part.captions); ++caption) {
      pairs.push_back({caption, part.seed_is_caption ? caption : static_cast<std::uint64_t>(seed), pairs.empty()});
    }
  }
  return pairs;
}

std::string Study::key_of(const Task& t, int version) const {
  const SamplerOptions& s = loaded_.sampler;
  std::string all =
      fmt::format("{}|{}|{}|{}|{} {} {} {}|{}", to_json(t.policy), to_string(t.part.grid),
                  captions_[t.pair.caption].text, t.pair.seed, s.kind, s.shift, s.guidance, kStudySteps, version);
  if (t.profile != nullptr) all += "|" + profile_hashes_.at(t.profile.get());
  return hash_text(all);
}

Study::Task Study::dense_task(const StudyPart& part, const Pair& pair) const {
  return {part, pair, part.dense, load_policy("dense"), nullptr, 1000};
}

VideoRequest Study::request_of(const Task& t) const {
  VideoRequest r;
  r.prompt = captions_[t.pair.caption].text;
  r.grid = t.part.grid;
  r.policy = t.policy;
  r.profile = t.profile;
  r.sampler = loaded_.sampler;
  r.sampler.steps = kStudySteps;
  r.threads = setup_.threads > 0 ? setup_.threads : Threads().width();
  r.seed = t.pair.seed;
  r.quiet = setup_.quiet;
  r.label = fmt::format("{} {} {:.2f}, caption {}, seed {}", to_string(t.part.grid), t.name, t.asked / 1000.0,
                        t.pair.caption + 1, t.pair.seed);
  return r;
}

std::optional<StudyLine> Study::known(const Task& t, const std::string& key) {
  const StudyLine* other = nullptr;
  for (const StudyLine& l : lines_) {
    if (l.key != key) continue;
    if (l.preset == t.name && l.density_asked == t.asked && (t.trial || !l.trial)) return l;
    other = &l;
  }
  if (other == nullptr) return std::nullopt;
  StudyLine copy = *other;
  copy.preset = t.name, copy.density_asked = t.asked, copy.trial = t.trial;
  keep(copy);
  return copy;
}

void Study::keep(const StudyLine& line) {
  append_file(lines_path(setup_), to_json_line(line));
  lines_.push_back(line);
}

StudyLine Study::line_of(const Task& t, const std::string& key, const VideoResult& run, const Dense& dense) const {
  StudyLine l;
  l.key = key, l.preset = t.name, l.policy = hash_text(to_json(t.policy));
  l.grid = to_string(t.part.grid), l.caption = captions_[t.pair.caption].text;
  l.density_asked = t.asked, l.seed = t.pair.seed, l.trial = t.trial;
  l.density = overall_density(run.stats);
  l.psnr = psnr(run.video, dense.video), l.ssim = ssim(run.video, dense.video);
  l.relative_l2 = relative_l2(run.video.rgb, dense.video.rgb);
  const CheckResult check = check_clip(run.video, captions_[t.pair.caption].objects);
  l.count = check.count, l.colours = check.colours, l.shapes = check.shapes, l.motions = check.motions;
  l.attention_s = run.time.attention_s, l.select_s = run.time.select_s;
  l.dit_s = run.time.dit_s, l.total_s = run.time.total_s;
  l.dense_attention_s = dense.attention_s, l.dense_dit_s = dense.dit_s;
  l.made = made_here();
  return l;
}

// The dense video, drawn once in a folder and kept as raw f32.
Study::Dense Study::dense_video(const StudyPart& part, const Pair& pair) {
  const Task task = dense_task(part, pair);
  const std::string key = key_of(task, kVideoVersion);
  const fs::path stem = fs::path(setup_.out) / "dense" / key, pixels = stem.string() + ".f32",
                 times = stem.string() + ".json";
  const WanConfig& c = loaded_.model.config();
  Dense dense;
  Video& v = dense.video;
  v.frames = part.grid.frames * c.patch_t;
  v.height = part.grid.height * c.patch_h * loaded_.codec.stride();
  v.width = part.grid.width * c.patch_w * loaded_.codec.stride();
  const auto count = static_cast<std::size_t>(v.frames * v.height * v.width * 3);
  const bool drawn = known(task, key).has_value();
  if (drawn && read_video(pixels, v, count) && read_times(times, dense.attention_s, dense.dit_s)) return dense;
  const VideoResult run = run_video(loaded_, request_of(task));
  v = run.video, dense.attention_s = run.time.attention_s, dense.dit_s = run.time.dit_s;
  const OrderedJson took = {{"attention_s", dense.attention_s}, {"dit_s", dense.dit_s}};
  write_file_atomic(times, took.dump() + "\n");
  write_file_atomic(pixels, {reinterpret_cast<const char*>(v.rgb.data()), count * sizeof(float)});
  if (!drawn) keep(line_of(task, key, run, dense));
  return dense;
}

StudyLine Study::run_one(const Task& t) {
  const std::string key = key_of(t, kVideoVersion);
  if (const auto line = known(t, key)) return *line;
  const Dense dense = dense_video(t.part, t.pair);
  VideoRequest request = request_of(t);
  RecallMeter meter(request.threads);
  if (t.pair.first) {
    request.observer = [&](const AttendCall& call, std::int64_t, ConstTensorView q, ConstTensorView k,
                           const BlockMask* mask) { meter.observe(call, q, k, mask); };
  }
  StudyLine line = line_of(t, key, run_video(loaded_, request), dense);
  line.recall = meter.mean(), line.recall_low = meter.low();
  line.dit_s -= meter.seconds(), line.total_s -= meter.seconds();
  keep(line);
  if (!setup_.quiet) {
    fmt::print(stderr, "{}{}: density {:.3f}, PSNR {:.2f} dB\n", request.label, t.trial ? ", trial" : "", line.density,
               line.psnr);
  }
  return line;
}

std::int32_t Study::find_top_p(const StudyPart& part, const Wish& wish) {
  const std::shared_ptr<const Profile> profile = profile_for(part, wish);
  const auto task_at = [&](std::int32_t top_p) {
    return Task{part,
                pairs_of(part).front(),
                wish.preset.name,
                policy_at(wish.preset, *wish.density, part.grid, profile.get(), top_p),
                profile,
                permille_of(wish.density),
                true};
  };
  const std::string id = hash_text(fmt::format("{}|{}", key_of(task_at(1000), kKnobVersion), permille_of(wish.density)));
  if (const auto it = top_p_.find(id); it != top_p_.end()) return it->second;
  const fs::path path = fs::path(setup_.out) / "knobs" / (id + ".json");
  if (fs::exists(path)) return top_p_[id] = read_top_p(path);

  std::int32_t low = 1, high = 1000, best = 500;
  double best_density = 2;
  for (int trial = 0; trial < kTrials && low <= high; ++trial) {
    const std::int32_t middle = (low + high) / 2;
    const double density = run_one(task_at(middle)).density;
    if (std::abs(density - *wish.density) < std::abs(best_density - *wish.density))
      best = middle, best_density = density;
    if (std::abs(best_density - *wish.density) <= kDensityTolerance / 2) break;
    (density > *wish.density ? high : low) = density > *wish.density ? middle - 1 : middle + 1;
  }
  const OrderedJson found = {{"preset", wish.preset.name},
                             {"grid", to_string(part.grid)},
                             {"density", *wish.density},
                             {"top_p", best},
                             {"met", best_density}};
  write_file_atomic(path, found.dump() + "\n");
  return top_p_[id] = best;
}

Policy Study::policy_of(const StudyPart& part, const Wish& wish) {
  if (!wish.density) return wish.preset.policy;
  const std::int32_t top_p = wish.preset.knob == Knob::kTopP ? find_top_p(part, wish) : 0;
  return policy_at(wish.preset, *wish.density, part.grid, profile_for(part, wish).get(), top_p);
}

void Study::find_knobs(const std::vector<StudyPart>& parts) {
  check(parts);
  std::size_t index = 0;
  for (const StudyPart& part : parts) {
    for (const Wish& wish : part.wishes) {
      if (wish.preset.knob != Knob::kTopP || !wish.density) continue;
      if (index++ % setup_.shards == setup_.shard) find_top_p(part, wish);
    }
  }
}

void Study::run(const std::vector<StudyPart>& parts) {
  check(parts);
  for (const StudyPart& part : parts) {
    std::vector<Task> tasks;
    std::size_t index = 0;
    for (const Pair& pair : pairs_of(part)) {
      if (index++ % setup_.shards != setup_.shard) continue;
      if (tasks.empty()) {
        for (const Wish& wish : part.wishes) {
          tasks.push_back({part, pair, wish.preset.name, policy_of(part, wish), profile_for(part, wish),
                           permille_of(wish.density)});
        }
      }
      dense_video(part, pair);
      for (Task& task : tasks) task.pair = pair, run_one(task);
    }
  }
}

}  // namespace tulle::cli
