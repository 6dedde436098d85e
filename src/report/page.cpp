// report.html: one page that carries everything it shows.
#include "report/page.hpp"

#include <array>

#include "base/file.hpp"
#include "base/json.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr std::size_t kLargestMedia = std::size_t{256} << 20;

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

// A data URL of a file, or "" for an empty path.
std::string embedded(const std::filesystem::path& path, std::string_view type) {
  if (path.empty()) return {};
  return fmt::format("data:{};base64,{}", type, base64(read_file(path, kLargestMedia)));
}

// Row by row, first block in the highest bit: eight blocks a byte, as base64.
std::string packed_bits(const MaskPicture& m) {
  std::string bytes((m.kept.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < m.kept.size(); ++i) {
    if (m.kept[i] != 0) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 128 >> (i % 8));
  }
  return base64(bytes);
}

OrderedJson masks_json(const RunReport& r) {
  OrderedJson masks = OrderedJson::array();
  for (const MaskPicture& m : r.masks) {
    require(m.rows >= 1 && m.columns >= 1 && m.kept.size() == static_cast<std::size_t>(m.rows * m.columns),
            "the picture of layer {}, head {} has {} values for {} x {} blocks", m.layer, m.head, m.kept.size(), m.rows,
            m.columns);
    masks.push_back(
        {{"layer", m.layer}, {"head", m.head}, {"rows", m.rows}, {"columns", m.columns}, {"bits", packed_bits(m)}});
  }
  return masks;
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
  data["masks"] = masks_json(report);
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
