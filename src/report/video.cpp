// Loads libtulle_video.so when the first MP4 is written.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "base/env.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "report/video_module.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kLargestSide = 8192;
constexpr int kLargestRate = 240;

// Folders of the running program and of the library this code is part of.
std::vector<fs::path> home_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) folders.push_back(program.parent_path());
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&home_folders), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(fs::absolute(info.dli_fname, ignored).parent_path());
  }
  return folders;
}

// Beside the program or library; installed (bin and lib beside each other); the build tree.
std::vector<fs::path> candidates() {
  if (!env().video_module.empty()) return {env().video_module};
  std::vector<fs::path> paths;
  for (const fs::path& home : home_folders()) {
    for (const char* place : {".", "tulle", "../lib/tulle", "../lib64/tulle", "../src"}) {
      paths.push_back((home / place / kTulleVideoFile).lexically_normal());
    }
  }
  return paths;
}

TulleVideoWrite load() {
  std::string tried;
  for (const fs::path& path : candidates()) {
    if (!fs::exists(path)) {
      tried += fmt::format("{}{} (not there)", tried.empty() ? "" : "; ", path.string());
      continue;
    }
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* entry = module == nullptr ? nullptr : dlsym(module, kTulleVideoEntry);
    if (entry != nullptr) return reinterpret_cast<TulleVideoWrite>(entry);
    const char* reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason == nullptr ? path.string() : reason);
  }
  fail(ErrorCode::kUnsupported,
       "MP4 files cannot be written because {} was not loaded: install libavformat, libavcodec and libswscale (and "
       "their "
       "-dev packages when building), or set TULLE_VIDEO_MODULE to its path; tried {}",
       kTulleVideoFile, tried);
}

TulleVideoWrite module() {
  static const TulleVideoWrite write = load();  // tried again at the next call if it throws
  return write;
}

void check_video(const fs::path& path, const Video& video, int rate) {
  require(video.frames >= 1 && video.height >= 1 && video.width >= 1 && video.height <= kLargestSide &&
              video.width <= kLargestSide &&
              video.rgb.size() == static_cast<std::size_t>(video.frames * video.height * video.width * 3),
          "cannot write {}: {} frames of {} x {} pixels do not fit {} values (sides are 1 to {})", path.string(),
          video.frames, video.height, video.width, video.rgb.size(), kLargestSide);
  require(rate >= 1 && rate <= kLargestRate, "cannot write {}: {} frames a second is not within 1 to {}", path.string(),
          rate, kLargestRate);
}

}  // namespace

std::string mp4_problem() {
  try {
    module();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void write_mp4(const fs::path& path, const Video& video, int frames_per_second) {
  check_video(path, video, frames_per_second);
  const TulleVideoWrite write = module();
  std::vector<std::uint8_t> bytes(video.rgb.size());
  std::transform(video.rgb.begin(), video.rgb.end(), bytes.begin(),
                 [](float v) { return static_cast<std::uint8_t>(std::lround(std::clamp(v, 0.0f, 1.0f) * 255.0f)); });
  std::array<char, 512> message{};
  write_through_temporary(path, [&](const fs::path& temporary) {
    const int failed = write(temporary.c_str(), bytes.data(), video.frames, video.height, video.width,
                             frames_per_second, message.data(), message.size());
    if (failed != 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), message.data());
  });
  static std::once_flag once;
  std::call_once(once, [&] { log(LogLevel::kInfo, "route: videos are encoded by {}", message.data()); });
}

}  // namespace tulle
