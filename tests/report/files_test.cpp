// Files: .npy clips, PNG, frame sheets, MP4.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"
#include "scene.hpp"
#include "tulle/error.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {
namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder = fs::temp_directory_path() / ("tulle_files_" + std::to_string(::getpid()));
};

Video small_clip(std::int64_t frames, std::int64_t height, std::int64_t width) {
  Video v{frames, height, width, {}};
  for (std::int64_t i = 0; i < frames * height * width * 3; ++i) v.rgb.push_back(static_cast<float>(i % 256) / 255.0f);
  return v;
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::kInternal;
}

std::string npy(const std::string& dictionary, std::size_t data) {
  std::string bytes = "\x93NUMPY";
  bytes += {'\1', '\0', static_cast<char>(dictionary.size() & 255), static_cast<char>(dictionary.size() >> 8)};
  return bytes + dictionary + std::string(data, 'x');
}

TEST_F(Files, ClipsComeBackAsTheyWere) {
  const std::vector<Video> clips = {small_clip(3, 4, 5), small_clip(3, 4, 5)};
  write_clips(folder / "a.npy", clips);
  const std::vector<Video> back = read_clips(folder / "a.npy");
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[1].frames, 3);
  EXPECT_EQ(back[1].height, 4);
  EXPECT_EQ(back[1].width, 5);
  EXPECT_EQ(back[1].rgb, clips[1].rgb);
  const std::string bytes = read_file(folder / "a.npy");
  EXPECT_EQ(bytes.find('\n') % 64, 63u) << "the data begin at a multiple of 64";
}

TEST_F(Files, OneClipMayComeWithoutACount) {
  write_file_atomic(folder / "b.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4, 3), }", 72));
  const std::vector<Video> back = read_clips(folder / "b.npy");
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].frames, 2);
  EXPECT_FLOAT_EQ(back[0].rgb[0], 'x' / 255.0f);
}

TEST_F(Files, BadClipFilesAreRefused) {
  const auto refused = [&](const std::string& bytes) {
    write_file_atomic(folder / "bad.npy", bytes);
    return code_of([&] { read_clips(folder / "bad.npy"); }) == ErrorCode::kBadFile;
  };
  const std::string good = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4, 3), }", 72);
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("PNG"));
  EXPECT_TRUE(refused(good.substr(0, 40)));
  EXPECT_TRUE(refused(good.substr(0, good.size() - 1)));
  EXPECT_TRUE(refused(good + "x"));
  EXPECT_TRUE(refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4, 3), }", 288)));
  EXPECT_TRUE(refused(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4, 3), }", 72)));
  EXPECT_TRUE(refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4, 4), }", 96)));
  EXPECT_TRUE(refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3, 4, 3), }", 0)));
  EXPECT_TRUE(refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-2, 3, 4, 3), }", 72)));
  EXPECT_TRUE(
      refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807, 9, 9, 9, 3), }", 72)));
  EXPECT_TRUE(refused(npy("{'descr': '|u1', 'fortran_order': False, }", 72)));
}

RC_GTEST_FIXTURE_PROP(Files, AnyBytesAreReadOrRefused, (const std::string& tail, std::uint8_t cut)) {
  std::string bytes = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 2, 3), }", 6);
  bytes = bytes.substr(0, cut) + tail;
  fs::create_directories(folder);
  write_file_atomic(folder / "any.npy", bytes);
  try {
    RC_ASSERT(!read_clips(folder / "any.npy").empty());
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::kBadFile);
  }
}

TEST_F(Files, ClipsOfDifferentShapesDoNotShareAFile) {
  const std::vector<Video> clips = {small_clip(3, 4, 5), small_clip(3, 5, 4)};
  EXPECT_EQ(code_of([&] { write_clips(folder / "c.npy", clips); }), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(folder / "c.npy"));
}

TEST_F(Files, PngHasItsSize) {
  write_png(folder / "p.png", 5, 7, small_clip(1, 5, 7).rgb);
  const std::string bytes = read_file(folder / "p.png");
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x89PNG\r\n\x1a\n", 8));
  EXPECT_EQ(big_endian(bytes, 16), 7u);
  EXPECT_EQ(big_endian(bytes, 20), 5u);
  EXPECT_EQ(code_of([&] { write_png(folder / "q.png", 5, 7, small_clip(1, 5, 6).rgb); }), ErrorCode::kInvalidArgument);
}

TEST_F(Files, SheetHasOneRowAClipAndAGapBetweenFrames) {
  const std::vector<Video> clips = {small_clip(9, 10, 20), small_clip(2, 30, 20)};
  write_frames_sheet(folder / "s.png", clips, 4);
  const std::string bytes = read_file(folder / "s.png");
  EXPECT_EQ(big_endian(bytes, 16), 4u * 20 + 3 * 3);
  EXPECT_EQ(big_endian(bytes, 20), 10u + 30 + 3);
  EXPECT_EQ(code_of([&] { write_frames_sheet(folder / "t.png", {}, 4); }), ErrorCode::kInvalidArgument);
}

bool has_video_module() { return fs::exists(fs::path(TULLE_BINARY_DIR) / "src/libtulle_video.so"); }

TEST_F(Files, Mp4IsH264WithItsIndexFirstAndEvenSides) {
  if (!has_video_module()) GTEST_SKIP() << "this build has no libav";
  write_mp4(folder / "v.mp4", scene::draw(scene::random_scene(3, 2, 9, 65, 81), 9, 65, 81), 8);
  const std::string bytes = read_file(folder / "v.mp4");
  EXPECT_EQ(bytes.substr(4, 4), "ftyp");
  EXPECT_LT(bytes.find("moov"), bytes.find("mdat"));
  const std::size_t entry = bytes.find("avc1", bytes.find("stsd"));
  ASSERT_NE(entry, std::string::npos);
  EXPECT_EQ(big_endian(bytes, entry + 28), 82u << 16 | 66u);  // width and height of the sample entry
  const std::size_t sizes = bytes.find("stsz");
  EXPECT_EQ(big_endian(bytes, sizes + 12), 9u) << "one sample a frame";
}

TEST_F(Files, Mp4IsTheSameEveryTime) {
  if (!has_video_module()) GTEST_SKIP() << "this build has no libav";
  const Video clip = small_clip(5, 32, 32);
  write_mp4(folder / "x.mp4", clip, 8);
  write_mp4(folder / "y.mp4", clip, 8);
  EXPECT_EQ(read_file(folder / "x.mp4"), read_file(folder / "y.mp4"));
}

TEST_F(Files, Mp4WithoutItsModuleSaysWhatToInstall) {
  if (has_video_module()) GTEST_SKIP() << "this build has libav";
  EXPECT_EQ(code_of([&] { write_mp4(folder / "v.mp4", small_clip(2, 8, 8), 8); }), ErrorCode::kUnsupported);
}

TEST_F(Files, Mp4RefusesBadRequestsAndLeavesNothing) {
  EXPECT_EQ(code_of([&] { write_mp4(folder / "v.mp4", small_clip(2, 8, 8), 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { write_mp4(folder / "v.mp4", Video{2, 8, 8, {}}, 8); }), ErrorCode::kInvalidArgument);
  if (has_video_module()) {
    EXPECT_EQ(code_of([&] { write_mp4(folder / "no/v.mp4", small_clip(2, 8, 8), 8); }), ErrorCode::kIo);
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

}  // namespace
}  // namespace tulle
