// Files: reading with bounds, and writing that never leaves a half-written file under its final name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tulle/error.hpp"

namespace tulle {

// Whole file as bytes. Refuses files larger than `limit` bytes before allocating. Throws Error(kIo).
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 30);

// Writes next to the target under a temporary name, flushes to disk, then renames. Throws Error(kIo), in which
// case nothing stands under `path` that did not stand there before.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Adds bytes at the end of a file, which is made if it is not there, and flushes them to disk. Throws Error(kIo); part
// of the bytes may then stand there.
void append_file(const std::filesystem::path& path, std::string_view bytes);

// For writers that need a path (a video encoder): calls write(temporary), then renames it to `path`;
// the temporary file is removed when write throws.
void write_through_temporary(const std::filesystem::path& path,
                             const std::function<void(const std::filesystem::path&)>& write);

// Creates the folder (and parents) and checks that a file can be made in it. Throws Error(kIo) with the reason.
void prepare_output_folder(const std::filesystem::path& folder);

}  // namespace tulle
