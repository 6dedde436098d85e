#include "dit/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

#include "base/checked.hpp"
#include "base/file.hpp"
#include "base/half.hpp"
#include "base/json.hpp"

namespace tulle {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kIndexLimit = std::size_t{64} << 20;

// Reads exactly out.size() bytes at `offset`; returns what went wrong, or "".
std::string read_at(int fd, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) return "it became shorter";
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return "";
}

std::shared_ptr<const int> open_descriptor(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return {new int(fd), [](const int* p) {
            if (*p >= 0) ::close(*p);
            delete p;
          }};
}

// Walks any JSON and stops at a key that stands twice in one object.
struct DuplicateFinder {
  std::vector<std::set<std::string>> open;
  std::string duplicate;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(std::vector<std::uint8_t>&) { return true; }
  bool start_array(std::size_t) { return true; }
  bool end_array() { return true; }
  bool start_object(std::size_t) {
    open.emplace_back();
    return true;
  }
  bool end_object() {
    open.pop_back();
    return true;
  }
  bool key(std::string& name) {
    if (open.back().insert(name).second) return true;
    duplicate = name;
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) { return true; }
};

// What is wrong with a shard's name, or "". Links are followed: the file itself must lie in the folder.
std::string shard_name_problem(const fs::path& folder, const std::string& name) {
  const fs::path path(name);
  if (name.empty() || name.find('\0') != std::string::npos) return "it is empty or holds a zero byte";
  if (path.is_absolute()) return "it is absolute";
  for (const fs::path& part : path) {
    if (part == "..") return "it leaves the folder through \"..\"";
  }
  std::error_code ec;
  const fs::path home = fs::canonical(folder, ec);
  if (ec) return ec.message();
  const fs::path target = fs::canonical(folder / path, ec);
  if (ec) return ec.message();
  const fs::path relative = target.lexically_relative(home);
  return relative.empty() || *relative.begin() == ".." ? "it links out of the folder" : "";
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

Expected<WeightMap> parse_index(const std::string& text, const std::string& where) {
  const auto bad = [&](const std::string& what) { return make_error(ErrorCode::kBadFile, "{}: {}", where, what); };
  auto json = parse_json(text, where);
  if (!json) return json.error();
  DuplicateFinder finder;
  if (!nlohmann::json::sax_parse(text, &finder)) return bad(fmt::format("key \"{}\" stands twice", finder.duplicate));
  const Json& root = json.value();
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return bad("an object with the key \"weight_map\" is needed");
  }
  WeightMap map;
  for (const auto& [name, shard] : root["weight_map"].items()) {
    if (!shard.is_string()) return bad(fmt::format("weight_map of \"{}\" is no file name", name));
    map.emplace(name, shard.get<std::string>());
  }
  if (map.empty()) return bad("\"weight_map\" is empty");
  return map;
}

Expected<WeightMap> read_index(const fs::path& path) {
  try {
    return parse_index(read_file(path, kIndexLimit), path.string());
  } catch (const Error& error) {
    return error;
  }
}

// The index and its shards must tell the same story. Returns what differs, or "".
std::string shard_problem(const SafetensorsFile& file, const std::string& shard, const WeightMap& map) {
  std::size_t listed = 0;
  for (const auto& [name, place] : map) listed += place == shard ? 1 : 0;
  for (const SafetensorsTensor& t : file.header().tensors) {
    const auto it = map.find(t.name);
    if (it == map.end()) return fmt::format("tensor \"{}\" of shard {} is not listed", t.name, shard);
    if (it->second != shard) {
      return fmt::format("tensor \"{}\" stands in {} but is listed in {}", t.name, shard, it->second);
    }
  }
  if (listed == file.header().tensors.size()) return "";
  std::set<std::string> present;
  for (const SafetensorsTensor& t : file.header().tensors) present.insert(t.name);
  for (const auto& [name, place] : map) {
    if (place == shard && present.count(name) == 0) {
      return fmt::format("tensor \"{}\" is listed in {} but is not there", name, shard);
    }
  }
  return "";
}

template <class T>
void widen(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = to_f32(value);
  }
}

}  // namespace

Expected<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::kIo, "cannot read {}: {}", path.string(), why);
  };
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = open_descriptor(path);
  const int fd = *file.descriptor_;
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("not a regular file");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < 8) {
    return make_error(ErrorCode::kBadFile, "{}: {} bytes are too few for a safetensors file", path.string(), bytes);
  }
  std::array<std::byte, 8> prefix{};
  if (const auto why = read_at(fd, 0, prefix); !why.empty()) return refuse(why);
  const auto length = parse_safetensors_length(prefix, bytes, path.string());
  if (!length) return length.error();
  std::string json(length.value(), '\0');
  if (const auto why = read_at(fd, 8, std::as_writable_bytes(std::span(json))); !why.empty()) return refuse(why);
  auto header = parse_safetensors_header(json, bytes - 8 - length.value(), path.string());
  if (!header) return header.error();
  file.header_ = std::move(header).value();
  return file;
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, std::span<std::byte> out) const {
  require(out.size() == tensor.bytes(), "{}: tensor \"{}\" has {} bytes, not {}", path_.string(), tensor.name,
          tensor.bytes(), out.size());
  const auto why = read_at(*descriptor_, header_.data_begin + tensor.begin, out);
  if (!why.empty()) fail(ErrorCode::kIo, "cannot read tensor \"{}\" of {}: {}", tensor.name, path_.string(), why);
}

Expected<SafetensorsSet> SafetensorsSet::add(SafetensorsFile file) && {
  const std::size_t index = files_.size();
  const auto& tensors = file.header().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (where_.emplace(tensors[i].name, Place{index, i}).second) continue;
    return make_error(ErrorCode::kBadFile, "{}: tensor \"{}\" stands in two shards", what_, tensors[i].name);
  }
  files_.push_back(std::move(file));
  return std::move(*this);
}

Expected<SafetensorsSet> SafetensorsSet::open_file(const fs::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  SafetensorsSet set;
  set.what_ = path.string();
  return std::move(set).add(std::move(file).value());
}

Expected<SafetensorsSet> SafetensorsSet::open_folder(const fs::path& folder, const std::string& stem) {
  const fs::path single = folder / (stem + ".safetensors"), index = folder / (stem + ".safetensors.index.json");
  std::error_code ec;
  const bool has_single = fs::exists(single, ec), has_index = fs::exists(index, ec);
  if (has_single == has_index) {
    return make_error(ErrorCode::kBadFile, "{}: {} of {} and {} there; one is needed", folder.string(),
                      has_single ? "both" : "neither", single.filename().string(), index.filename().string());
  }
  if (has_single) return open_file(single);
  const auto map = read_index(index);
  if (!map) return map.error();
  std::set<std::string> shards;
  for (const auto& [name, shard] : map.value()) shards.insert(shard);
  SafetensorsSet set;
  set.what_ = index.string();
  for (const std::string& shard : shards) {
    if (const auto why = shard_name_problem(folder, shard); !why.empty()) {
      return make_error(ErrorCode::kBadFile, "{}: shard \"{}\" is refused: {}", index.string(), shard, why);
    }
    auto file = SafetensorsFile::open(folder / shard);
    if (!file) return file.error();
    if (const auto why = shard_problem(file.value(), shard, map.value()); !why.empty()) {
      return make_error(ErrorCode::kBadFile, "{}: {}", index.string(), why);
    }
    auto grown = std::move(set).add(std::move(file).value());
    if (!grown) return grown.error();
    set = std::move(grown).value();
  }
  return set;
}

std::vector<std::string> SafetensorsSet::names() const {
  std::vector<std::string> all;
  for (const auto& [name, place] : where_) all.push_back(name);
  return all;
}

std::vector<fs::path> SafetensorsSet::files() const {
  std::vector<fs::path> all;
  for (const SafetensorsFile& file : files_) all.push_back(file.path());
  return all;
}

const SafetensorsTensor& SafetensorsSet::tensor(const std::string& name) const {
  const auto it = where_.find(name);
  if (it == where_.end()) fail(ErrorCode::kBadFile, "{}: tensor \"{}\" is missing", what_, name);
  return files_[it->second.file].header().tensors[it->second.tensor];
}

std::string SafetensorsSet::where(const std::string& name) const {
  const auto it = where_.find(name);
  const std::string path = it == where_.end() ? what_ : files_[it->second.file].path().string();
  return fmt::format("{}: tensor \"{}\"", path, name);
}

Buffer<float> SafetensorsSet::read_f32(const std::string& name, std::span<const std::int64_t> shape) const {
  const SafetensorsTensor& t = tensor(name);
  if (!std::equal(shape.begin(), shape.end(), t.shape.begin(), t.shape.end())) {
    fail(ErrorCode::kBadFile, "{} has shape {} but the configuration asks for {}", where(name), shape_text(t.shape),
         shape_text(shape));
  }
  const std::string_view type = t.type->name;
  if (type != "F32" && type != "BF16" && type != "F16") {
    fail(ErrorCode::kBadFile, "{} holds {}; F32, BF16 or F16 is needed", where(name), type);
  }
  Buffer<std::byte> bytes(t.bytes());
  files_[where_.at(name).file].read(t, bytes.span());
  Buffer<float> values(static_cast<std::size_t>(t.elements()));
  if (type == "F32")
    widen<float>(bytes.span(), values.span());
  else if (type == "BF16")
    widen<Bf16>(bytes.span(), values.span());
  else
    widen<F16>(bytes.span(), values.span());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) fail(ErrorCode::kBadFile, "{} holds {} at element {}", where(name), values[i], i);
  }
  return values;
}

}  // namespace tulle
