// Runs the built command as a process of its own and collects what it printed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"

namespace tulle {

// A folder of this test, removed at its end.
struct TestFolder {
  std::filesystem::path path;
  explicit TestFolder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("tulle-cli-" + std::to_string(::getpid()) + "-" + name)) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~TestFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
  }
};

struct Outcome {
  int exit = -1;  // 128 + signal when killed
  std::string out, err;
};

class TulleProcess {
 public:
  TulleProcess(const std::filesystem::path& folder, const std::vector<std::string>& args)
      : out_(folder / "stdout.txt"), err_(folder / "stderr.txt") {
    std::vector<std::string> all = {TULLE_BINARY_DIR "/src/tulle"};
    all.insert(all.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      redirect(out_, STDOUT_FILENO);
      redirect(err_, STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  Outcome wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return {code, read_file(out_), read_file(err_)};
  }

 private:
  static void redirect(const std::filesystem::path& path, int fd) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(file, fd);
  }
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

inline Outcome run_tulle(const std::filesystem::path& folder, const std::vector<std::string>& args) {
  return TulleProcess(folder, args).wait();
}

// A test with a folder of its own, where a model may stand.
class CommandTest : public testing::Test {
 protected:
  CommandTest() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  std::filesystem::path model() const { return folder_.path / "model"; }
  Outcome tulle(const std::vector<std::string>& args) const { return run_tulle(folder_.path, args); }

  TestFolder folder_;
};

}  // namespace tulle
