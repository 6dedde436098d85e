#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fail.hpp"

namespace tulle {
namespace fs = std::filesystem;
namespace {

std::string reason() { return std::strerror(errno); }

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

fs::path temporary_beside(const fs::path& path) {
  fs::path temporary = path;
  temporary.replace_filename(fmt::format(".{}.{}.part{}", path.stem().string(), ::getpid(), path.extension().string()));
  return temporary;
}

void write_all(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), reason());
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string read_file(const fs::path& path, std::size_t limit) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail(ErrorCode::kIo, "cannot open {}: {}", path.string(), reason());
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail(ErrorCode::kIo, "cannot read {}: {}", path.string(), reason());
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kIo, "cannot read {}: not a regular file", path.string());
  if (static_cast<std::size_t>(info.st_size) > limit) {
    fail(ErrorCode::kBadFile, "{}: {} bytes are more than the {} bytes allowed for this kind of file", path.string(),
         info.st_size, limit);
  }
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::kIo, "cannot read {}: {}", path.string(), n < 0 ? reason() : "it became shorter");
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

void append_file(const fs::path& path, std::string_view bytes) {
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  if (file.fd < 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), reason());
  write_all(file.fd, bytes, path);
  if (::fsync(file.fd) != 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), reason());
}

void write_through_temporary(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = temporary_beside(path);
  try {
    write(temporary);
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail(ErrorCode::kIo, "cannot rename {} to {}: {}", temporary.string(), path.string(), reason());
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  write_through_temporary(path, [&](const fs::path& temporary) {
    const Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.fd < 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), reason());
    write_all(file.fd, bytes, path);
    if (::fsync(file.fd) != 0) fail(ErrorCode::kIo, "cannot write {}: {}", path.string(), reason());
  });
}

void prepare_output_folder(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) fail(ErrorCode::kIo, "cannot create the output folder {}: {}", folder.string(), ec.message());
  if (!fs::is_directory(folder)) fail(ErrorCode::kIo, "the output folder {} is not a folder", folder.string());
  const fs::path probe = folder / fmt::format(".tulle-{}.probe", ::getpid());
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) fail(ErrorCode::kIo, "cannot write into the output folder {}: {}", folder.string(), reason());
  ::close(fd);
  ::unlink(probe.c_str());
}

}  // namespace tulle
