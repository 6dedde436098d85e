// .npy files of unsigned bytes: the one array format in which clips travel between tools (docs/formats/clips.md).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kFileLimit = std::size_t{1} << 32;
constexpr std::size_t kHeaderLimit = 4096;

struct Header {
  std::vector<std::int64_t> shape;
  std::size_t data_begin = 0;
};

Error bad(const std::string& where, const std::string& what) {
  return make_error(ErrorCode::kBadFile, "{}: {}; write it with numpy.save from a uint8 array", where, what);
}

// The text behind "'key':" in numpy's header dictionary, or nothing.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}':", key);
  const std::size_t at = header.find(quoted);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(4, 9, 128, 128, 3)" -> numbers; nothing on any other text.
std::vector<std::int64_t> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  const std::size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == std::string_view::npos) return {};
  text = text.substr(1, close - 1);
  while (!text.empty()) {
    std::int64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || value < 0) return {};
    shape.push_back(value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const std::size_t next = text.find_first_not_of(", ");
    text.remove_prefix(next == std::string_view::npos ? text.size() : next);
  }
  return shape;
}

Expected<Header> parse_header(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 10 || bytes.substr(0, 6) != kMagic) return bad(where, "this is not an .npy file");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t version = byte(6);
  if (version != 1 && version != 2) return bad(where, fmt::format("format version {} is not known", version));
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (bytes.size() < prefix) return bad(where, "the header is cut off");
  std::size_t length = byte(8) | byte(9) << 8;
  if (version == 2) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kHeaderLimit || length > bytes.size() - prefix) return bad(where, "the header is cut off or too long");
  const std::string_view header = bytes.substr(prefix, length);
  if (value_of(header, "descr").substr(0, 5) != "'|u1'") return bad(where, "the elements are not unsigned bytes");
  if (value_of(header, "fortran_order").substr(0, 5) != "False") return bad(where, "the array is in Fortran order");
  Header result{parse_shape(value_of(header, "shape")), prefix + length};
  if (result.shape.size() == 4) result.shape.insert(result.shape.begin(), 1);
  if (result.shape.size() != 5 || result.shape.back() != 3) {
    return bad(where, "the shape is not [n, frames, height, width, 3] or [frames, height, width, 3]");
  }
  return result;
}

std::uint8_t to_byte(float v) { return static_cast<std::uint8_t>(std::lround(std::clamp(v, 0.0f, 1.0f) * 255.0f)); }

}  // namespace

std::vector<Video> read_clips(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kFileLimit);
  const Header header = parse_header(bytes, path.string()).value();
  const std::vector<std::int64_t>& s = header.shape;
  const auto total = checked_product({s[0], s[1], s[2], s[3], s[4]});
  if (!total || static_cast<std::size_t>(*total) != bytes.size() - header.data_begin) {
    throw bad(path.string(), fmt::format("{} bytes of data do not fill the shape", bytes.size() - header.data_begin));
  }
  if (*total == 0) throw bad(path.string(), "there are no pixels");
  std::vector<Video> videos(static_cast<std::size_t>(s[0]));
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data()) + header.data_begin;
  const auto size = static_cast<std::size_t>(*total / s[0]);
  for (Video& video : videos) {
    video = {s[1], s[2], s[3], std::vector<float>(size)};
    std::transform(data, data + size, video.rgb.begin(),
                   [](unsigned char v) { return static_cast<float>(v) / 255.0f; });
    data += size;
  }
  return videos;
}

void write_clips(const std::filesystem::path& path, std::span<const Video> videos) {
  require(!videos.empty(), "no clips to write to {}: give at least one", path.string());
  const Video& first = videos.front();
  std::string header = fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}, {}, {}, {}, 3), }}",
                                   videos.size(), first.frames, first.height, first.width);
  header.append(63 - (header.size() + 10) % 64, ' ');  // the data begin at a multiple of 64
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  bytes += header;
  for (const Video& v : videos) {
    require(v.frames == first.frames && v.height == first.height && v.width == first.width &&
                v.rgb.size() == first.rgb.size(),
            "clips of different shapes cannot go into {}: write one file a shape", path.string());
    for (const float value : v.rgb) bytes.push_back(static_cast<char>(to_byte(value)));
  }
  write_file_atomic(path, bytes);
}

}  // namespace tulle
