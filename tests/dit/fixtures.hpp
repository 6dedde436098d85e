// What diffusers computed, as tools/fixtures/make_wan_fixtures.py wrote it.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "dit/safetensors.hpp"

namespace tulle {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(TULLE_SOURCE_DIR) / "tests/dit/fixtures" / name;
}

class Fixture {
 public:
  explicit Fixture(const std::string& name) : file_(SafetensorsFile::open(fixture(name)).value()) {}

  const SafetensorsTensor& tensor(const std::string& name) const {
    for (const SafetensorsTensor& t : file_.header().tensors) {
      if (t.name == name) return t;
    }
    throw Error(ErrorCode::kBadFile, "no tensor " + name);
  }
  const std::map<std::string, std::string>& metadata() const { return file_.header().metadata; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const SafetensorsTensor& t : file_.header().tensors) all.push_back(t.name);
    return all;
  }

  // T is the stored type: float for F32, double for F64.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const SafetensorsTensor& t = tensor(name);
    std::vector<T> values(static_cast<std::size_t>(t.elements()));
    file_.read(t, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  SafetensorsFile file_;
};

template <class A, class B>
double relative_l2(const std::vector<A>& got, const std::vector<B>& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got.at(i)) - static_cast<double>(want[i]);
    error += difference * difference;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(error / size);
}

}  // namespace tulle
