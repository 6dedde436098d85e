// The project's own rules, checked on its files: which room may include which, one reader of the environment,
// sizes of files. The table below is the one in docs/architecture.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace tulle {
namespace {

namespace fs = std::filesystem;
using Rooms = std::set<std::string>;

// Room -> rooms it may include directly; base is implied everywhere.
const std::map<std::string, Rooms>& rooms() {
  static const std::map<std::string, Rooms> table = {
      {"base", {}},
      {"device", {}},
      {"grid", {}},
      {"link", {}},
      {"fabric", {"device"}},
      {"mask", {"grid", "device"}},
      {"plan", {"mask", "link", "grid"}},
      {"attend", {"mask", "grid", "device"}},
      {"moe", {"link", "fabric", "device"}},
      {"sim", {"plan", "link"}},
      {"select", {"mask", "grid", "device"}},
      {"run", {"select", "plan", "sim", "fabric", "attend", "mask", "grid", "link", "device"}},
      {"calibrate", {"run", "select", "attend", "mask", "grid"}},
      {"probe", {"fabric", "attend", "link", "sim", "device"}},
      {"report", {"plan", "mask", "grid", "link"}},
      {"dit", {"run", "moe", "grid", "device"}},
  };
  return table;
}

// Public headers belong to rooms, too.
const std::map<std::string, std::string>& public_headers() {
  static const std::map<std::string, std::string> table = {
      {"error", "base"}, {"tensor", "base"},      {"threads", "base"},  {"version", "base"},  {"grid", "grid"},
      {"mask", "mask"},  {"attention", "attend"}, {"policy", "select"}, {"plan", "plan"},     {"fabric", "fabric"},
      {"engine", "run"}, {"model", "dit"},        {"report", "report"}, {"rank_map", "mask"}, {"profile", "select"}};
  return table;
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> sources(const std::string& folder) {
  std::vector<fs::path> found;
  const fs::path root = fs::path(TULLE_SOURCE_DIR) / folder;
  if (!fs::exists(root)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    static const Rooms kinds = {".cpp", ".hpp", ".cu", ".cuh", ".h"};
    if (entry.is_regular_file() && kinds.count(entry.path().extension().string()) != 0) found.push_back(entry.path());
  }
  return found;
}

// The room that an include of ours names, or "".
std::string room_of(const std::string& include) {
  const auto slash = include.find('/');
  if (slash == std::string::npos) return "";
  const std::string head = include.substr(0, slash);
  if (head != "tulle") return rooms().count(head) != 0 || head == "cli" ? head : "";
  const std::string stem = fs::path(include).stem().string();
  const auto it = public_headers().find(stem);
  return it == public_headers().end() ? "umbrella" : it->second;
}

std::vector<std::string> included_rooms(const fs::path& path) {
  static const std::regex pattern("#include \"([^\"]+)\"");
  const std::string text = read(path);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string room = room_of((*it)[1]);
    if (!room.empty()) found.push_back(room);
  }
  return found;
}

bool allowed(const std::string& room, const std::string& included) {
  if (included == room || included == "base") return true;
  const auto it = rooms().find(room);
  return it != rooms().end() && it->second.count(included) != 0;
}

TEST(Layering, RoomsIncludeOnlyWhatTheTableAllows) {
  int checked = 0;
  for (const fs::path& path : sources("src")) {
    const std::string room = fs::relative(path, fs::path(TULLE_SOURCE_DIR) / "src").begin()->string();
    if (room == "cli" || room == "api") continue;  // the top floor wires rooms together
    ASSERT_TRUE(rooms().count(room)) << "src/" << room << " is not a room of the table";
    for (const std::string& included : included_rooms(path)) {
      ++checked;
      EXPECT_TRUE(allowed(room, included)) << path << " includes room " << included;
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(Layering, PublicHeadersFollowTheTable) {
  int headers = 0;
  for (const fs::path& path : sources("include")) {
    ++headers;
    const std::string stem = path.stem().string();
    if (stem == "tulle") continue;
    const auto it = public_headers().find(stem);
    ASSERT_NE(it, public_headers().end()) << path << " belongs to no room";
    // The model's header shows Engine and grid; the rest of the rule is that of its room.
    for (const std::string& included : included_rooms(path)) {
      EXPECT_TRUE(allowed(it->second, included)) << path << " includes room " << included;
    }
  }
  EXPECT_LE(headers, 25);
}

TEST(Layering, TheRuleItselfCatchesAPlantedBreach) {
  EXPECT_FALSE(allowed("plan", "fabric"));
  EXPECT_FALSE(allowed("attend", "select"));
  EXPECT_FALSE(allowed("fabric", "attend"));
  EXPECT_FALSE(allowed("grid", "mask"));
  EXPECT_TRUE(allowed("run", "select"));
  EXPECT_EQ(room_of("tulle/engine.hpp"), "run");
}

TEST(Rules, OnlyEnvReadsTheEnvironment) {
  for (const fs::path& path : sources("src")) {
    if (path.filename() == "env.cpp") continue;
    EXPECT_EQ(read(path).find("getenv"), std::string::npos) << path;
  }
}

TEST(Rules, FilesStayReadable) {
  for (const char* folder : {"src", "include", "tests", "bench"}) {
    for (const fs::path& path : sources(folder)) {
      const std::string text = read(path);
      const auto lines = std::count(text.begin(), text.end(), '\n');
      EXPECT_LE(lines, path.extension() == ".cu" ? 1000 : 600) << path;
    }
  }
}

}  // namespace
}  // namespace tulle
