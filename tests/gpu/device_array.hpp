// Device memory for tests and benchmarks: an owning array with copies in and out; every CUDA call is checked.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "base/fail.hpp"

namespace tulle {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(ErrorCode::kInternal, "{}: {}", what, cudaGetErrorString(status));
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : size_(count) {
    check_cuda(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    check_cuda(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return static_cast<T*>(data_); }
  std::size_t size() const { return size_; }
  // Waits for all queued work.
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    check_cuda(cudaDeviceSynchronize(), "kernel");
    check_cuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

}  // namespace tulle
