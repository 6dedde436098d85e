// Which model a file was made for.
#pragma once

#include <filesystem>
#include <string>

namespace tulle {

// XXH3-64 over the bytes of the transformer's weight files, one after the other by name (as the index lists shards), as
// 16 hexadecimal digits. Reads them in pieces. Throws Error(kBadFile | kIo) as loading does.
std::string model_hash(const std::filesystem::path& folder);

}  // namespace tulle
