// check_clips: how many clips of a file show what their captions ask for.
//
//     check_clips CLIPS.npy CAPTIONS [--json OUT] [--verbose]
//
// CAPTIONS has one line a clip, in the order of the clips: JSON lines with "objects": [{"colour", "shape", "motion"}],
// or caption text. Exit codes: 0 measured, 1 failed, 2 usage.
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

struct Options {
  std::string clips, captions, json;
  bool verbose = false;
};

struct Rates {
  std::size_t clips = 0, passed = 0, count = 0, colours = 0, shapes = 0, motions = 0;
};

constexpr std::array<std::string_view, 8> kColours = {"red",  "orange", "yellow", "green",
                                                      "cyan", "blue",   "purple", "pink"};
constexpr std::array<std::string_view, 4> kShapes = {"circle", "square", "triangle", "cross"};
constexpr std::array<std::string_view, 5> kMotions = {"left", "right", "up", "down", "still"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The object phrases of a caption stand before the word "over"; each ends with its motion word.
std::vector<ObjectFacts> facts_of_text(const std::string& line) {
  std::string letters = line;
  for (char& c : letters) c = std::isalpha(static_cast<unsigned char>(c)) ? c : ' ';
  std::istringstream words(letters);
  std::vector<ObjectFacts> facts;
  ObjectFacts current;
  for (std::string word; words >> word && word != "over";) {
    if (among(kColours, word)) current.colour = word;
    if (among(kShapes, word)) current.shape = word;
    if (!among(kMotions, word)) continue;
    current.motion = word;
    facts.push_back(std::exchange(current, {}));
  }
  return facts;
}

std::vector<ObjectFacts> facts_of_json(const std::string& line, const std::string& where) {
  const Json row = parse_json(line, where).value();
  std::vector<ObjectFacts> facts;
  for (const Json& object : json_need<Json>(row, "objects", where)) {
    facts.push_back({json_need<std::string>(object, "colour", where), json_need<std::string>(object, "shape", where),
                     json_need<std::string>(object, "motion", where)});
  }
  return facts;
}

std::vector<std::vector<ObjectFacts>> read_captions(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::vector<std::vector<ObjectFacts>> all;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{}, line {}", path, all.size() + 1);
    all.push_back(line.front() == '{' ? facts_of_json(line, where) : facts_of_text(line));
    if (all.back().empty()) fail(ErrorCode::kBadFile, "{}: no object phrase was found in this caption", where);
  }
  return all;
}

std::string in_words(const std::vector<ObjectFacts>& facts) {
  std::string text;
  for (const ObjectFacts& f : facts)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", f.colour, f.shape, f.motion);
  return text;
}

std::vector<CheckResult> check_all(const std::vector<Video>& clips,
                                   const std::vector<std::vector<ObjectFacts>>& asked) {
  std::vector<CheckResult> results(clips.size());
  const std::size_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::size_t w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      for (std::size_t i = w; i < clips.size(); i += workers) results[i] = check_clip(clips[i], asked[i]);
    });
  }
  threads.clear();
  return results;
}

Rates rates_of(const std::vector<CheckResult>& results) {
  Rates rates;
  for (const CheckResult& r : results) {
    ++rates.clips;
    rates.passed += r.passed();
    rates.count += r.count;
    rates.colours += r.colours;
    rates.shapes += r.shapes;
    rates.motions += r.motions;
  }
  return rates;
}

void write_json(const Options& options, const Rates& rates, const std::vector<CheckResult>& results) {
  const auto share = [&](std::size_t n) { return static_cast<double>(n) / static_cast<double>(rates.clips); };
  OrderedJson json = {
      {"clips", rates.clips},           {"passed", rates.passed},          {"pass_rate", share(rates.passed)},
      {"count", share(rates.count)},    {"colours", share(rates.colours)}, {"shapes", share(rates.shapes)},
      {"motions", share(rates.motions)}};
  for (const CheckResult& r : results) json["each"].push_back(r.passed());
  write_file_atomic(options.json, json.dump(1) + "\n");
}

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--verbose")
      options.verbose = true;
    else if (word == "--json" && i + 1 < argc)
      options.json = argv[++i];
    else if (!word.starts_with("--"))
      paths.push_back(word);
    else
      fail(ErrorCode::kInvalidArgument, "unknown option {}", word);
  }
  require(paths.size() == 2, "usage: check_clips CLIPS.npy CAPTIONS [--json OUT] [--verbose]");
  options.clips = paths[0];
  options.captions = paths[1];
  return options;
}

void run(const Options& options) {
  const std::vector<Video> clips = read_clips(options.clips);
  std::vector<std::vector<ObjectFacts>> asked = read_captions(options.captions);
  require(asked.size() >= clips.size(), "{} has {} captions for {} clips: give one line a clip", options.captions,
          asked.size(), clips.size());
  const std::vector<CheckResult> results = check_all(clips, asked);
  for (std::size_t i = 0; options.verbose && i < clips.size(); ++i) {
    if (results[i].passed()) continue;
    fmt::print("clip {}: asked {}; seen {}\n", i, in_words(asked[i]), in_words(observe_clip(clips[i])));
  }
  const Rates r = rates_of(results);
  const auto percent = [&](std::size_t n) { return 100.0 * static_cast<double>(n) / static_cast<double>(r.clips); };
  fmt::print("{} of {} clips pass ({:.1f} %); count {:.1f} %, colours {:.1f} %, shapes {:.1f} %, motions {:.1f} %\n",
             r.passed, r.clips, percent(r.passed), percent(r.count), percent(r.colours), percent(r.shapes),
             percent(r.motions));
  if (!options.json.empty()) write_json(options, r, results);
}

}  // namespace
}  // namespace tulle

int main(int argc, char** argv) {
  try {
    tulle::run(tulle::parse(argc, argv));
    return 0;
  } catch (const tulle::Error& error) {
    std::fprintf(stderr, "check_clips: %s\n", error.what());
    return error.code() == tulle::ErrorCode::kInvalidArgument ? 2 : 1;
  }
}
