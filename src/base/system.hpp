// Facts about this machine that reports and refusals need.
#pragma once

#include <cstdint>
#include <string>

namespace tulle {

std::string cpu_name();           // "AMD EPYC", from /proc/cpuinfo
int cpu_count();                  // cores this process may use (affinity mask)
std::int64_t available_memory();  // bytes that can be taken without swapping; the cgroup limit counts
std::int64_t resident_memory();   // resident size of this process now, bytes
std::int64_t peak_memory();       // largest resident size of this process so far, bytes
bool cpu_has(const char* flag);   // a flag of /proc/cpuinfo: "avx2", "amx_bf16"
double now_seconds();             // steady clock
std::string utc_date();           // today, as 2026-11-30

}  // namespace tulle
