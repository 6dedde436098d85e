// report.json, the printed table and the page.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "sample_report.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {
namespace fs = std::filesystem;

void expect_equal(const RunReport& a, const RunReport& b) {
  EXPECT_EQ(report_json(a), report_json(b));
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.density_by_head, b.density_by_head);
  EXPECT_EQ(a.bytes_per_edge, b.bytes_per_edge);
  EXPECT_EQ(a.routes.size(), b.routes.size());
  EXPECT_EQ(a.psnr, b.psnr);
  EXPECT_EQ(a.dense_time.dit_s, b.dense_time.dit_s);
  EXPECT_EQ(a.peak_memory, b.peak_memory);
}

// The report with one value of its JSON changed; an empty value removes the key.
ErrorCode code_after(const std::string& pointer, const std::string& value) {
  Json json = Json::parse(report_json(sample_report(true)));
  const Json::json_pointer at(pointer);
  if (value.empty())
    json.at(at.parent_pointer()).erase(at.back());
  else
    json[at] = Json::parse(value);
  try {
    parse_report(json.dump(), "changed");
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << pointer << " = " << value << " was accepted";
  return ErrorCode::kInternal;
}

TEST(ReportJson, HasTheKeysOfSchemaOne) {
  const Json json = Json::parse(report_json(sample_report(true)));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["tulle"]["version"], "1.2.3");
  EXPECT_EQ(json["grid"], Json({9, 16, 16}));
  EXPECT_EQ(json["density"]["by_step"].size(), 4u);
  EXPECT_EQ(json["dense"]["time"]["dit_s"], 8.0);
  EXPECT_EQ(json["speedup"]["dit"], 1.6);
  EXPECT_EQ(json["bytes"]["per_edge"][0][1], 4096);
  EXPECT_EQ(json["routes"][0]["route"], "avx2");
  EXPECT_EQ(json["balance"]["time"], 1.1);
}

TEST(ReportJson, ComesBackAsItWas) {
  for (const bool compared : {true, false}) {
    const RunReport report = sample_report(compared);
    const RunReport back = parse_report(report_json(report), "here");
    EXPECT_EQ(back.compared, compared);
    expect_equal(report, back);
  }
}

TEST(ReportJson, WithoutADenseRunTheComparisonIsNull) {
  const Json json = Json::parse(report_json(sample_report(false)));
  for (const char* key : {"dense", "speedup", "amdahl_ceiling", "quality"}) EXPECT_TRUE(json[key].is_null()) << key;
}

TEST(ReportJson, KeepsAnInfinitePsnr) {
  RunReport report = sample_report(true);
  report.psnr = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(parse_report(report_json(report), "here").psnr));
}

TEST(ReportJson, RefusesUnknownSchemas) {
  EXPECT_EQ(code_after("/schema", "2"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/schema", "\"1\""), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/schema", ""), ErrorCode::kBadFile);
}

TEST(ReportJson, RefusesMalformedReports) {
  EXPECT_EQ(code_after("/surprise", "1"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/model", ""), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/grid", "[1, 2]"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/grid/0", "4294967297"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/grid/0", "1.5"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/steps", "-4294967291"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/ranks", "0"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/density/overall", "\"low\""), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/density/by_step", "[1, null]"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/density/by_head", "[1]"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/routes", "{}"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/routes/0/why", ""), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/dense", "null"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/bytes/per_edge", "[[1, 2]]"), ErrorCode::kBadFile);
  EXPECT_EQ(code_after("/bytes/sent", "-1"), ErrorCode::kBadFile);
  EXPECT_THROW(parse_report("[]", "here"), Error);
  EXPECT_THROW(parse_report("{", "here"), Error);
}

RC_GTEST_PROP(ReportJson, AnyTextIsReadOrRefused, (const std::string& text, std::uint16_t at)) {
  std::string json = report_json(sample_report(true));
  json.replace(at % json.size(), text.size(), text);
  try {
    parse_report(json, "here");
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::kBadFile);
  }
}

TEST(ReportTable, ShowsBothRunsInAlignedColumns) {
  const std::string table = report_table(sample_report(true));
  for (const char* part : {"density", "0.2500", "1.60x", "1.38x", "Amdahl ceiling", "31.50 dB", "0.9500", "8.0 KiB",
                           "64.0 KiB", "2 ranks"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << " is missing in\n" << table;
  }
  const auto column = [&](const char* line, const char* word) {
    const std::size_t begin = table.rfind('\n', table.find(line)) + 1;
    return table.find(word, begin) + std::string(word).size() - begin;
  };
  EXPECT_EQ(column("\nDiT", "1.60x"), column("\ntotal", "1.38x"));
}

TEST(ReportTable, WithoutADenseRunShowsNoSpeedUp) {
  const std::string table = report_table(sample_report(false));
  EXPECT_EQ(table.find("speed-up"), std::string::npos);
  EXPECT_EQ(table.find("PSNR"), std::string::npos);
  EXPECT_NE(table.find("0.2500"), std::string::npos);
}

class Page : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  std::string page(const RunReport& report, bool media) {
    write_file_atomic(folder / "v.mp4", "not really a film");
    write_file_atomic(folder / "f.png", std::string("\0\xff\n", 3));
    write_report_html(folder / "r.html", report, media ? folder / "v.mp4" : fs::path(),
                      media ? folder / "v.mp4" : fs::path(), media ? folder / "f.png" : fs::path());
    return read_file(folder / "r.html");
  }
  static Json data_of(const std::string& html) {
    const std::string open = "<script type=\"application/json\" id=\"data\">";
    const std::size_t begin = html.find(open) + open.size();
    return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  }
  fs::path folder = fs::temp_directory_path() / ("tulle_page_" + std::to_string(::getpid()));
};

TEST_F(Page, NeedsNoNetwork) {
  const std::string html = page(sample_report(true), true);
  for (const char* sign : {"http:", "https:", "src=\"/", "@import", "url(", "//cdn"}) {
    EXPECT_EQ(html.find(sign), std::string::npos) << sign;
  }
}

TEST_F(Page, CarriesReportMediaAndPictures) {
  const Json data = data_of(page(sample_report(true), true));
  EXPECT_EQ(data["report"], Json::parse(report_json(sample_report(true))));
  EXPECT_EQ(data["video"], "data:video/mp4;base64,bm90IHJlYWxseSBhIGZpbG0=");
  EXPECT_EQ(data["dense_video"], data["video"]);
  EXPECT_EQ(data["frames"], "data:image/png;base64,AP8K");
  ASSERT_EQ(data["masks"].size(), 1u);
  EXPECT_EQ(data["masks"][0]["bits"], "goA=");  // 1000001010 -> 0x82 0x80
  EXPECT_EQ(data["timeline"][1], Json({"select", 1, 0.5, 0.75}));
}

TEST_F(Page, WorksWithoutMedia) {
  const Json data = data_of(page(sample_report(false), false));
  EXPECT_EQ(data["video"], "");
  EXPECT_EQ(data["frames"], "");
}

TEST_F(Page, APromptCannotEndTheScript) {
  RunReport report = sample_report(true);
  report.prompt = "</script><script>alert(1)</script><!--\xff";
  const std::string html = page(report, true);
  EXPECT_EQ(html.find("alert(1)</script>"), std::string::npos);
  const auto prompt = data_of(html)["report"]["prompt"].get<std::string>();
  EXPECT_EQ(prompt.substr(0, 25), "</script><script>alert(1)");
}

TEST_F(Page, RefusesAMaskThatDoesNotFitItsSize) {
  RunReport report = sample_report(true);
  report.masks[0].kept.pop_back();
  EXPECT_THROW(page(report, true), Error);
}

TEST_F(Page, NamesAMissingVideo) {
  EXPECT_THROW(write_report_html(folder / "r.html", sample_report(true), folder / "none.mp4", {}, {}), Error);
  EXPECT_FALSE(fs::exists(folder / "r.html"));
}

}  // namespace
}  // namespace tulle
