// The CUDA driver, found at run time: the core neither links CUDA nor needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tulle {

struct GpuFacts {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

struct DriverFacts {
  bool found = false;
  std::string problem;  // why there is no driver, or what it answered; empty when all is well
  int version = 0;      // 13000 for CUDA 13.0
  std::vector<GpuFacts> gpus;
};

// Loads libcuda.so.1 and asks it. Never throws for a missing or broken driver: the problem is told in words.
DriverFacts ask_cuda_driver();

// "" when the shared object loads, else the loader's words.
std::string shared_object_problem(const char* name);

}  // namespace tulle
