// MP4 through libav. Compiled as a module of its own that is loaded when a video is written; it shares nothing with the
// rest but the C entry, and reports errors as text.
#include "report/video_module.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/log.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

namespace {

struct Free {
  void operator()(AVFormatContext* c) const {
    if (c->pb != nullptr) avio_closep(&c->pb);
    avformat_free_context(c);
  }
  void operator()(AVCodecContext* c) const { avcodec_free_context(&c); }
  void operator()(AVFrame* f) const { av_frame_free(&f); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
  void operator()(SwsContext* s) const { sws_freeContext(s); }
};

template <class T>
using Owned = std::unique_ptr<T, Free>;

template <class T>
Owned<T> need(T* pointer, const char* what) {
  if (pointer == nullptr) throw std::runtime_error(std::string("libav has no ") + what);
  return Owned<T>(pointer);
}

void check(int result, const char* what) {
  if (result >= 0) return;
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(result, text, sizeof text);
  throw std::runtime_error(std::string(what) + ": " + text);
}

const AVCodec* find_encoder() {
  for (const char* name : {"libx264", "libopenh264"}) {
    if (const AVCodec* codec = avcodec_find_encoder_by_name(name)) return codec;
  }
  // Hardware encoders found by id may fail on a machine without the hardware; MPEG-4 is built into libav.
  return avcodec_find_encoder(AV_CODEC_ID_MPEG4);
}

struct Clip {
  const std::uint8_t* rgb;
  std::int64_t frames, height, width;
  int rate;
};

int even(std::int64_t n) { return static_cast<int>(n + n % 2); }

Owned<AVCodecContext> open_encoder(const AVCodec* codec, const Clip& clip, bool global_header) {
  auto context = need(avcodec_alloc_context3(codec), "memory for an encoder");
  context->width = even(clip.width);
  context->height = even(clip.height);
  context->pix_fmt = AV_PIX_FMT_YUV420P;
  context->time_base = {1, clip.rate};
  context->framerate = {clip.rate, 1};
  context->gop_size = 12;
  context->thread_count = 1;  // the same bytes on every machine
  context->color_range = AVCOL_RANGE_MPEG;
  context->colorspace = AVCOL_SPC_BT709;
  context->color_primaries = AVCOL_PRI_BT709;
  context->color_trc = AVCOL_TRC_BT709;
  context->flags |= AV_CODEC_FLAG_BITEXACT;
  if (global_header) context->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  if (std::string(codec->name) == "libx264") {
    av_opt_set(context->priv_data, "crf", "12", 0);
    av_opt_set(context->priv_data, "preset", "medium", 0);
  } else {  // no constant quality there: about as many bits as crf 12 takes on small clips
    context->bit_rate = 2 * static_cast<std::int64_t>(context->width) * context->height * clip.rate;
  }
  check(avcodec_open2(context.get(), codec, nullptr), "the encoder does not open");
  return context;
}

// One RGB frame, padded to even sides by repetition.
std::vector<std::uint8_t> padded(const Clip& clip, std::int64_t frame) {
  const std::int64_t h = even(clip.height), w = even(clip.width);
  const std::uint8_t* source = clip.rgb + frame * clip.height * clip.width * 3;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(h * w * 3));
  for (std::int64_t y = 0; y < h; ++y) {
    const std::uint8_t* row = source + std::min(y, clip.height - 1) * clip.width * 3;
    for (std::int64_t x = 0; x < w; ++x) {
      const std::uint8_t* pixel = row + std::min(x, clip.width - 1) * 3;
      std::copy_n(pixel, 3, out.data() + (y * w + x) * 3);
    }
  }
  return out;
}

Owned<SwsContext> open_converter(const AVCodecContext& encoder) {
  auto converter = need(
      sws_getContext(encoder.width, encoder.height, AV_PIX_FMT_RGB24, encoder.width, encoder.height, AV_PIX_FMT_YUV420P,
                     SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT, nullptr, nullptr, nullptr),
      "colour converter");
  const int* bt709 = sws_getCoefficients(SWS_CS_ITU709);
  sws_setColorspaceDetails(converter.get(), bt709, 1, bt709, 0, 0, 1 << 16, 1 << 16);
  return converter;
}

void drain(AVCodecContext& encoder, AVFormatContext& file, AVStream& stream, AVPacket& packet) {
  for (;;) {
    const int result = avcodec_receive_packet(&encoder, &packet);
    if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return;
    check(result, "encoding fails");
    packet.duration = 1;
    av_packet_rescale_ts(&packet, encoder.time_base, stream.time_base);
    packet.stream_index = stream.index;
    check(av_interleaved_write_frame(&file, &packet), "writing fails");
  }
}

Owned<AVFrame> blank_frame(const AVCodecContext& encoder) {
  auto frame = need(av_frame_alloc(), "memory for a frame");
  frame->format = encoder.pix_fmt;
  frame->width = encoder.width;
  frame->height = encoder.height;
  frame->color_range = encoder.color_range;
  frame->colorspace = encoder.colorspace;
  frame->color_primaries = encoder.color_primaries;
  frame->color_trc = encoder.color_trc;
  check(av_frame_get_buffer(frame.get(), 0), "no memory for a frame");
  return frame;
}

void encode(const Clip& clip, AVCodecContext& encoder, AVFormatContext& file, AVStream& stream) {
  const auto converter = open_converter(encoder);
  const auto frame = blank_frame(encoder);
  const auto packet = need(av_packet_alloc(), "memory for a packet");
  for (std::int64_t i = 0; i < clip.frames; ++i) {
    const std::vector<std::uint8_t> rgb = padded(clip, i);
    check(av_frame_make_writable(frame.get()), "no memory for a frame");
    const std::uint8_t* planes[1] = {rgb.data()};
    const int stride[1] = {encoder.width * 3};
    sws_scale(converter.get(), planes, stride, 0, encoder.height, frame->data, frame->linesize);
    frame->pts = i;
    check(avcodec_send_frame(&encoder, frame.get()), "encoding fails");
    drain(encoder, file, stream, *packet);
  }
  check(avcodec_send_frame(&encoder, nullptr), "encoding fails");
  drain(encoder, file, stream, *packet);
}

// Returns the encoder's name.
std::string write(const char* path, const Clip& clip) {
  AVFormatContext* raw = nullptr;
  check(avformat_alloc_output_context2(&raw, nullptr, "mp4", path), "no MP4 writer");
  const auto file = need(raw, "MP4 writer");
  file->flags |= AVFMT_FLAG_BITEXACT;
  const AVCodec* codec = find_encoder();
  if (codec == nullptr) throw std::runtime_error("libav has no H.264 or MPEG-4 encoder");
  const auto encoder = open_encoder(codec, clip, (file->oformat->flags & AVFMT_GLOBALHEADER) != 0);
  AVStream* stream = avformat_new_stream(file.get(), nullptr);
  if (stream == nullptr) throw std::runtime_error("no memory for a stream");
  stream->time_base = encoder->time_base;
  stream->avg_frame_rate = encoder->framerate;
  check(avcodec_parameters_from_context(stream->codecpar, encoder.get()), "no memory for a stream");
  check(avio_open(&file->pb, path, AVIO_FLAG_WRITE), "the file does not open");
  AVDictionary* options = nullptr;
  av_dict_set(&options, "movflags", "+faststart", 0);
  const int begun = avformat_write_header(file.get(), &options);
  av_dict_free(&options);
  check(begun, "writing fails");
  encode(clip, *encoder, *file, *stream);
  check(av_write_trailer(file.get()), "writing fails");
  return codec->name;
}

}  // namespace

extern "C" int tulle_video_write(const char* path, const std::uint8_t* rgb, std::int64_t frames, std::int64_t height,
                                 std::int64_t width, int frames_per_second, char* message, std::size_t message_size) {
  av_log_set_level(AV_LOG_ERROR);
  try {
    const std::string name = write(path, {rgb, frames, height, width, frames_per_second});
    std::snprintf(message, message_size, "%s", name.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(message, message_size, "%s", e.what());
    return 1;
  }
}
