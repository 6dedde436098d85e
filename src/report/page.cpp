// report.html: one page that carries everything it shows.
#include "report/page.hpp"

#include "base/file.hpp"
#include "base/json.hpp"
#include "report/page_pictures.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr std::size_t kLargestMedia = std::size_t{256} << 20;
constexpr std::size_t kLargestPictures = std::size_t{4} << 20;  // of masks and rank maps together

// A data URL of a file, or "" for an empty path.
std::string embedded(const std::filesystem::path& path, std::string_view type) {
  if (path.empty()) return {};
  return fmt::format("data:{};base64,{}", type, page::base64(read_file(path, kLargestMedia)));
}

OrderedJson timeline_json(const RunReport& r) {
  OrderedJson spans = OrderedJson::array();
  for (const TimelineSpan& s : r.timeline) spans.push_back({s.name, s.rank, s.begin_s, s.end_s});
  return spans;
}

// JSON that may stand inside a script element: no "<" can end the element or begin a comment.
std::string script_safe(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace

void write_report_html(const std::filesystem::path& path, const RunReport& report,
                       const std::filesystem::path& video_mp4, const std::filesystem::path& dense_mp4,
                       const std::filesystem::path& frames_png) {
  OrderedJson data;
  data["report"] = OrderedJson::parse(report_json(report));
  data["video"] = embedded(video_mp4, "video/mp4");
  data["dense_video"] = embedded(dense_mp4, "video/mp4");
  data["frames"] = embedded(frames_png, "image/png");
  data.update(page::pictures(report, kLargestPictures));
  data["timeline"] = timeline_json(report);
  const std::string json = data.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>Tulle report</title>\n<style>\n";
  html += page::kStyle;
  html += "</style>\n</head>\n<body>\n";
  html += page::kBody;
  html += "<script type=\"application/json\" id=\"data\">";
  html += script_safe(json);
  html += "</script>\n<script>\n";
  html += page::kScript;
  html += "</script>\n</body>\n</html>\n";
  write_file_atomic(path, html);
}

}  // namespace tulle
