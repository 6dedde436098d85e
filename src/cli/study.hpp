// The runner of the quality study: draws the videos that are missing, and keeps a line of each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/quality.hpp"
#include "cli/video_run.hpp"

namespace tulle::cli {

// One row of the table before its videos exist.
struct Wish {
  StudyPreset preset;
  std::optional<double> density;             // none: the policy as it is
  std::shared_ptr<const Profile> profile{};  // null: the study's profile of the part's grid, where one is needed
};

// Videos of one grid: every wish for every caption and seed.
struct StudyPart {
  TokenGrid grid;
  int captions = 1;              // the first of the caption file
  int seeds = 1;                 // of each caption, from 0
  bool seed_is_caption = false;  // one seed a caption, its index; `seeds` is not read
  std::string dense = "dense";   // name of the row of dense videos
  std::vector<Wish> wishes;
};

// What a study runs on.
struct StudySetup {
  std::string model = "models/tiny", out = "out/quality";
  std::string captions;               // .jsonl with "caption" and "objects"; empty: the model's heldout.jsonl
  std::vector<std::string> profiles;  // files; a grid without one takes the model's own (shipped_profile)
  std::size_t shard = 0, shards = 1;
  int threads = 0;  // 0: all cores
  bool quiet = false;
};

// The folder of a study holds lines-<shard>.jsonl, dense/<key>.f32 and .json (videos to compare with, and the times
// that they took) and knobs/<key>.json (what a search found). A folder without dense/ can be gone on with anywhere:
// dense videos are drawn again, and the times of lines are compared with those of dense videos on the same machine.
// Several processes may use one folder, each with a shard of its own.
//
// A shard owns every shards-th (caption, seed) of a part: it draws that dense video and the videos of all wishes, so no
// two shards draw one video. A knob belongs to all: it is read from the folder, or found on the first caption and seed,
// which gives all shards the same; find_knobs first saves every shard that search.
// Thread safety: none.
class Study {
 public:
  // Loads model, captions of the parts to come, profiles, and the lines that stand in the folder.
  explicit Study(const StudySetup& setup);

  const std::vector<std::shared_ptr<const Profile>>& profiles() const { return profiles_; }

  // Both throw Error(kInvalidArgument) before any video when a wish lacks its profile or the captions are too few,
  // Error(kCancelled) after Ctrl-C, and whatever run_video throws. What was drawn by then stays.
  void find_knobs(const std::vector<StudyPart>& parts);  // this shard's share of the searches
  void run(const std::vector<StudyPart>& parts);

  const std::vector<StudyLine>& lines() const { return lines_; }

 private:
  struct Caption {
    std::string text;
    std::vector<ObjectFacts> objects;
  };
  // One caption and seed of a part.
  struct Pair {
    std::size_t caption = 0;
    std::uint64_t seed = 0;
    bool first = false;  // knobs and recall are found on it
  };
  struct Dense {
    Video video;
    double attention_s = 0, dit_s = 0;
  };
  // One video to draw, or to take from a line.
  struct Task {
    const StudyPart& part;
    Pair pair;
    std::string name;
    Policy policy;
    std::shared_ptr<const Profile> profile;
    std::int32_t asked = 0;
    bool trial = false;
  };

  void add_profile(const std::string& path);
  bool has_profile(const TokenGrid& grid) const;
  void check(const std::vector<StudyPart>& parts);
  std::vector<Pair> pairs_of(const StudyPart& part) const;
  std::shared_ptr<const Profile> profile_for(const StudyPart& part, const Wish& wish) const;
  Policy policy_of(const StudyPart& part, const Wish& wish);
  std::int32_t find_top_p(const StudyPart& part, const Wish& wish);

  std::string key_of(const Task& task, int version) const;
  Task dense_task(const StudyPart& part, const Pair& pair) const;
  VideoRequest request_of(const Task& task) const;
  Dense dense_video(const StudyPart& part, const Pair& pair);
  StudyLine line_of(const Task& task, const std::string& key, const VideoResult& run, const Dense& dense) const;
  StudyLine run_one(const Task& task);
  // The line that answers the task; one that was drawn for another row, or for a search, is taken over.
  std::optional<StudyLine> known(const Task& task, const std::string& key);
  void keep(const StudyLine& line);

  StudySetup setup_;
  Loaded loaded_;
  std::vector<Caption> captions_;
  std::vector<std::shared_ptr<const Profile>> profiles_;
  std::map<const Profile*, std::string> profile_hashes_;
  std::map<std::string, std::int32_t> top_p_;  // found in this process, by key
  std::vector<StudyLine> lines_;
};

}  // namespace tulle::cli
