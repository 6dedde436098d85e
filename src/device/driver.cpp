#include "device/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tulle {
namespace {

struct Library {
  void* handle = nullptr;
  explicit Library(const char* name) : handle(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class F>
  F get(const char* name) const {
    return reinterpret_cast<F>(::dlsym(handle, name));
  }
};

// The few driver entry points that doctor needs, by their documented C signatures.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*memory)(std::size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;

  explicit Driver(const Library& lib)
      : init(lib.get<decltype(init)>("cuInit")),
        version(lib.get<decltype(version)>("cuDriverGetVersion")),
        count(lib.get<decltype(count)>("cuDeviceGetCount")),
        get(lib.get<decltype(get)>("cuDeviceGet")),
        name(lib.get<decltype(name)>("cuDeviceGetName")),
        memory(lib.get<decltype(memory)>("cuDeviceTotalMem_v2")),
        attribute(lib.get<decltype(attribute)>("cuDeviceGetAttribute")) {}

  bool complete() const { return init && version && count && get && name && memory && attribute; }
};

// Numbers of CUdevice_attribute.
constexpr int kMultiprocessorCount = 16, kComputeMajor = 75, kComputeMinor = 76;

GpuFacts ask_gpu(const Driver& driver, int index) {
  GpuFacts facts;
  int device = 0;
  if (driver.get(&device, index) != 0) return facts;
  char name[128] = "";
  std::size_t bytes = 0;
  driver.name(name, sizeof name, device);
  driver.memory(&bytes, device);
  driver.attribute(&facts.multiprocessors, kMultiprocessorCount, device);
  driver.attribute(&facts.compute_major, kComputeMajor, device);
  driver.attribute(&facts.compute_minor, kComputeMinor, device);
  facts.name = name;
  facts.memory_bytes = static_cast<std::int64_t>(bytes);
  return facts;
}

}  // namespace

std::string shared_object_problem(const char* name) {
  const Library lib(name);
  if (lib.handle != nullptr) return "";
  const char* why = ::dlerror();
  return why != nullptr ? why : "unknown reason";
}

DriverFacts ask_cuda_driver() {
  DriverFacts facts;
  const Library lib("libcuda.so.1");
  if (lib.handle == nullptr) {
    facts.problem = "no NVIDIA driver (libcuda.so.1 cannot be loaded)";
    return facts;
  }
  facts.found = true;
  const Driver driver(lib);
  if (!driver.complete()) {
    facts.problem = "libcuda.so.1 lacks entry points of CUDA 12 or newer";
    return facts;
  }
  if (const int status = driver.init(0); status != 0) {
    facts.problem = fmt::format("the driver answers error {} to cuInit (no GPU visible, or a broken driver)", status);
    return facts;
  }
  int count = 0;
  driver.version(&facts.version);
  driver.count(&count);
  for (int i = 0; i < count; ++i) facts.gpus.push_back(ask_gpu(driver, i));
  return facts;
}

}  // namespace tulle
