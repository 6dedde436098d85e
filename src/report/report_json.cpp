// report.json, schema 1 (docs/formats/report.md).
#include <cmath>
#include <limits>

#include "base/json.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr int kSchema = 1;
constexpr std::size_t kMostValues = std::size_t{1} << 20;  // entries of one list

constexpr std::string_view kTopKeys[] = {
    "schema", "tulle",   "machine",        "model",    "prompt", "grid",      "steps",   "seed",   "guidance",
    "shift",  "policy",  "ranks",          "parallel", "device", "precision", "density", "routes", "time",
    "dense",  "speedup", "amdahl_ceiling", "quality",  "bytes",  "balance",   "memory"};
constexpr std::string_view kTulleKeys[] = {"version", "commit"};
constexpr std::string_view kMachineKeys[] = {"processor", "cores", "threads", "gpu"};
constexpr std::string_view kDensityKeys[] = {"overall", "by_step", "by_layer", "by_head"};
constexpr std::string_view kRouteKeys[] = {"what", "route", "why"};
constexpr std::string_view kTimeKeys[] = {"attention_s", "select_s", "communication_s", "dit_s", "total_s"};
constexpr std::string_view kDenseKeys[] = {"time"};
constexpr std::string_view kSpeedupKeys[] = {"attention", "dit", "total"};
constexpr std::string_view kQualityKeys[] = {"psnr", "ssim", "relative_l2"};
constexpr std::string_view kBytesKeys[] = {"sent", "dense_sent", "per_edge"};
constexpr std::string_view kBalanceKeys[] = {"blocks", "time"};
constexpr std::string_view kMemoryKeys[] = {"predicted", "peak"};

OrderedJson json_of(const ReportTimes& t) {
  return {{"attention_s", t.attention_s},
          {"select_s", t.select_s},
          {"communication_s", t.communication_s},
          {"dit_s", t.dit_s},
          {"total_s", t.total_s}};
}

OrderedJson routes_json(const RunReport& r) {
  OrderedJson routes = OrderedJson::array();
  for (const ReportRoute& route : r.routes) {
    routes.push_back({{"what", route.what}, {"route", route.route}, {"why", route.why}});
  }
  return routes;
}

// What needs a dense run to be known is null without one, so that every report has the same keys.
void add_comparison(OrderedJson& json, const RunReport& r) {
  json["dense"] = nullptr;
  json["speedup"] = nullptr;
  json["amdahl_ceiling"] = nullptr;
  json["quality"] = nullptr;
  if (!r.compared) return;
  json["dense"] = {{"time", json_of(r.dense_time)}};
  json["speedup"] = {{"attention", r.speedup_attention}, {"dit", r.speedup_dit}, {"total", r.speedup_total}};
  json["amdahl_ceiling"] = r.amdahl_ceiling;
  json["quality"] = {{"psnr", r.psnr}, {"ssim", r.ssim}, {"relative_l2", r.relative_l2}};
}

// A JSON object at a key of a parsed report, with a name for error texts; its keys are checked.
struct Part {
  const Json& json;
  std::string where;

  Part(const Json& object, std::span<const std::string_view> keys, std::string name)
      : json(object), where(std::move(name)) {
    refuse_unknown_keys(json, keys, where);
  }
  const Json& at(const char* key) const {
    if (!json.contains(key)) fail(ErrorCode::kBadFile, "{}: key \"{}\" is missing", where, key);
    return json[key];
  }
  Part part(const char* key, std::span<const std::string_view> keys) const {
    return {at(key), keys, fmt::format("{}: {}", where, key)};
  }
  std::string text(const char* key) const { return json_need<std::string>(json, key, where); }
  double number(const char* key) const { return json_need<double>(json, key, where); }
  // A whole number within the range of T and not below `least`.
  template <class T>
  T whole(const char* key, T least) const {
    return whole_of<T>(at(key), key, least);
  }
  template <class T>
  T whole_of(const Json& value, const char* key, T least) const {
    const bool fits = value.is_number_unsigned() &&  // the parser calls every number below zero signed
                      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (!fits || value.get<T>() < least) {
      fail(ErrorCode::kBadFile, "{}: key \"{}\" needs a whole number of at least {}, not {}", where, key, least,
           value.dump());
    }
    return value.get<T>();
  }
  const Json& list(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array() || value.size() > kMostValues) {
      fail(ErrorCode::kBadFile, "{}: key \"{}\" needs a list of at most {} values", where, key, kMostValues);
    }
    return value;
  }
  std::vector<double> numbers(const char* key) const { return numbers_of(list(key), key); }
  std::vector<double> numbers_of(const Json& values, const char* key) const {
    std::vector<double> out;
    for (const Json& v : values) {
      if (!v.is_number()) fail(ErrorCode::kBadFile, "{}: \"{}\" holds {} where a number belongs", where, key, v.dump());
      out.push_back(v.get<double>());
    }
    return out;
  }
};

ReportTimes times_of(const Part& p) {
  return {p.number("attention_s"), p.number("select_s"), p.number("communication_s"), p.number("dit_s"),
          p.number("total_s")};
}

void read_run(const Part& top, RunReport& r) {
  r.model = top.text("model");
  r.prompt = top.text("prompt");
  r.policy = top.text("policy");
  r.parallel = top.text("parallel");
  r.device = top.text("device");
  r.precision = top.text("precision");
  const Json& grid = top.list("grid");
  if (grid.size() != 3)
    fail(ErrorCode::kBadFile, "{}: \"grid\" needs three numbers, it has {}", top.where, grid.size());
  for (std::size_t i = 0; i < 3; ++i) r.grid[i] = top.whole_of<std::int32_t>(grid[i], "grid", 1);
  r.steps = top.whole<std::int32_t>("steps", 0);
  r.ranks = top.whole<std::int32_t>("ranks", 1);
  r.seed = top.whole<std::uint64_t>("seed", 0);
  r.guidance = top.number("guidance");
  r.shift = top.number("shift");
}

void read_machine(const Part& top, RunReport& r) {
  const Part tulle = top.part("tulle", kTulleKeys);
  r.tulle_version = tulle.text("version");
  r.tulle_commit = tulle.text("commit");
  const Part machine = top.part("machine", kMachineKeys);
  r.processor = machine.text("processor");
  r.cores = machine.whole<int>("cores", 0);
  r.threads = machine.whole<int>("threads", 0);
  r.gpu = machine.text("gpu");
}

void read_density(const Part& top, RunReport& r) {
  const Part density = top.part("density", kDensityKeys);
  r.density = density.number("overall");
  r.density_by_step = density.numbers("by_step");
  r.density_by_layer = density.numbers("by_layer");
  for (const Json& row : density.list("by_head")) {
    if (!row.is_array()) fail(ErrorCode::kBadFile, "{}: \"by_head\" needs a list a layer", density.where);
    r.density_by_head.push_back(density.numbers_of(row, "by_head"));
  }
}

void read_comparison(const Part& top, RunReport& r) {
  r.compared = !top.at("dense").is_null();
  for (const char* key : {"speedup", "amdahl_ceiling", "quality"}) {
    if (top.at(key).is_null() == r.compared) {
      fail(ErrorCode::kBadFile, "{}: \"dense\" and \"{}\" must both be there or both be null", top.where, key);
    }
  }
  if (!r.compared) return;
  r.dense_time = times_of(top.part("dense", kDenseKeys).part("time", kTimeKeys));
  const Part speedup = top.part("speedup", kSpeedupKeys);
  r.speedup_attention = speedup.number("attention");
  r.speedup_dit = speedup.number("dit");
  r.speedup_total = speedup.number("total");
  r.amdahl_ceiling = top.number("amdahl_ceiling");
  const Part quality = top.part("quality", kQualityKeys);
  const bool equal = quality.at("psnr").is_null();  // JSON has no infinity
  r.psnr = equal ? std::numeric_limits<double>::infinity() : quality.number("psnr");
  const bool tiny = quality.at("ssim").is_null();  // frames smaller than its window
  r.ssim = tiny ? std::numeric_limits<double>::quiet_NaN() : quality.number("ssim");
  r.relative_l2 = quality.number("relative_l2");
}

void read_traffic(const Part& top, RunReport& r) {
  const Part bytes = top.part("bytes", kBytesKeys);
  r.bytes_sent = bytes.whole<std::int64_t>("sent", 0);
  r.dense_bytes_sent = bytes.whole<std::int64_t>("dense_sent", 0);
  const Json& edges = bytes.list("per_edge");
  for (const Json& from : edges) {
    if (!from.is_array() || from.size() != edges.size()) {
      fail(ErrorCode::kBadFile, "{}: \"per_edge\" is not square: give one list of {} a rank", bytes.where,
           edges.size());
    }
    auto& row = r.bytes_per_edge.emplace_back();
    for (const Json& value : from) row.push_back(bytes.whole_of<std::int64_t>(value, "per_edge", 0));
  }
  const Part balance = top.part("balance", kBalanceKeys);
  r.balance_blocks = balance.number("blocks");
  r.balance_time = balance.number("time");
  const Part memory = top.part("memory", kMemoryKeys);
  r.predicted_memory = memory.whole<std::int64_t>("predicted", 0);
  r.peak_memory = memory.whole<std::int64_t>("peak", 0);
}

void check_schema(const Json& json, const std::string& where) {
  if (!json.is_object())
    fail(ErrorCode::kBadFile, "{}: a report is a JSON object, this is {}", where, json.type_name());
  if (json.contains("schema") && json["schema"] == kSchema) return;
  fail(ErrorCode::kBadFile, "{}: report schema {} is not known, this version reads schema {}", where,
       json.contains("schema") ? json["schema"].dump() : "(none)", kSchema);
}

}  // namespace

std::string report_json(const RunReport& r) {
  OrderedJson json;
  json["schema"] = kSchema;
  json["tulle"] = {{"version", r.tulle_version}, {"commit", r.tulle_commit}};
  json["machine"] = {{"processor", r.processor}, {"cores", r.cores}, {"threads", r.threads}, {"gpu", r.gpu}};
  json["model"] = r.model;
  json["prompt"] = r.prompt;
  json["grid"] = r.grid;
  json["steps"] = r.steps;
  json["seed"] = r.seed;
  json["guidance"] = r.guidance;
  json["shift"] = r.shift;
  json["policy"] = r.policy;
  json["ranks"] = r.ranks;
  json["parallel"] = r.parallel;
  json["device"] = r.device;
  json["precision"] = r.precision;
  json["density"] = {{"overall", r.density},
                     {"by_step", r.density_by_step},
                     {"by_layer", r.density_by_layer},
                     {"by_head", r.density_by_head}};
  json["routes"] = routes_json(r);
  json["time"] = json_of(r.time);
  add_comparison(json, r);
  json["bytes"] = {{"sent", r.bytes_sent}, {"dense_sent", r.dense_bytes_sent}, {"per_edge", r.bytes_per_edge}};
  json["balance"] = {{"blocks", r.balance_blocks}, {"time", r.balance_time}};
  json["memory"] = {{"predicted", r.predicted_memory}, {"peak", r.peak_memory}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

RunReport parse_report(const std::string& json_text, const std::string& where) {
  const Json json = parse_json(json_text, where).value();
  check_schema(json, where);
  const Part top(json, kTopKeys, where);
  RunReport r;
  read_run(top, r);
  read_machine(top, r);
  read_density(top, r);
  for (const Json& entry : top.list("routes")) {
    const Part route(entry, kRouteKeys, where + ": routes");
    r.routes.push_back({route.text("what"), route.text("route"), route.text("why")});
  }
  r.time = times_of(top.part("time", kTimeKeys));
  read_comparison(top, r);
  read_traffic(top, r);
  return r;
}

}  // namespace tulle
