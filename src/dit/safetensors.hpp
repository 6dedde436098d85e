// safetensors: reading (one file, or shards with an index) and writing.
//
// Files are foreign bytes: every number is bounded before it is used, and a file that breaks a rule of
// docs/formats/safetensors.md is refused with one sentence. Reads copy through pread, so that a file that shrinks
// while it is open gives an error and not a signal.
// Thread safety: a SafetensorsFile or SafetensorsSet may be read from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/error.hpp"
#include "tulle/tensor.hpp"

namespace tulle {

// An element type by its name in the file: "F32", "BF16", ... Sub-byte types have bits that are no multiple of 8.
struct SafetensorsType {
  const char* name;
  std::int64_t bits;
};
std::span<const SafetensorsType> safetensors_types();

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes within the data part

  std::int64_t elements() const;
  std::uint64_t bytes() const { return end - begin; }
};

std::string shape_text(std::span<const std::int64_t> shape);  // "[384, 16, 1, 2, 2]"

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;  // by offset: together they cover the data part exactly
  std::uint64_t data_begin = 0;            // bytes from the start of the file
};

constexpr std::uint64_t kSafetensorsHeaderLimit = 100'000'000;

// The header's length from the first eight bytes of a file of `file_bytes` bytes.
Expected<std::uint64_t> parse_safetensors_length(std::span<const std::byte, 8> prefix, std::uint64_t file_bytes,
                                                 const std::string& where);
// The header itself, for a data part of `data_bytes` bytes. `where` starts every message.
Expected<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                     const std::string& where);

class SafetensorsFile {
 public:
  static Expected<SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Bytes of one tensor of header(); `out` has tensor.bytes() bytes. Throws Error(kIo).
  void read(const SafetensorsTensor& tensor, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const int> descriptor_;  // closed by its deleter
  SafetensorsHeader header_;
};

// All tensors of a checkpoint, by name.
class SafetensorsSet {
 public:
  // `folder`/`stem`.safetensors, or `folder`/`stem`.safetensors.index.json with its shards; both at once is an error.
  static Expected<SafetensorsSet> open_folder(const std::filesystem::path& folder, const std::string& stem);
  static Expected<SafetensorsSet> open_file(const std::filesystem::path& path);

  std::vector<std::string> names() const;            // sorted
  std::vector<std::filesystem::path> files() const;  // by name
  bool contains(const std::string& name) const { return where_.count(name) != 0; }
  // Throws Error(kBadFile) naming the set when there is no such tensor.
  const SafetensorsTensor& tensor(const std::string& name) const;
  std::string where(const std::string& name) const;  // "path: tensor name" for messages

  // The tensor as f32, from F32, BF16 or F16; throws Error(kBadFile) naming file and tensor for another type, another
  // shape than `shape`, or an element that is not finite.
  Buffer<float> read_f32(const std::string& name, std::span<const std::int64_t> shape) const;

 private:
  struct Place {
    std::size_t file = 0, tensor = 0;
  };
  Expected<SafetensorsSet> add(SafetensorsFile file) &&;

  std::string what_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> where_;
};

struct SafetensorsEntry {
  std::string name, type;  // type as in safetensors_types()
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// The whole file as bytes: entries in the given order, header padded with spaces to a multiple of 8 bytes.
// Throws Error(kInvalidArgument) for an unknown type, a wrong byte count, or a repeated name.
std::string serialize_safetensors(std::span<const SafetensorsEntry> entries,
                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace tulle
