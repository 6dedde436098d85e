// The C entry of libtulle_video.so, which alone links libav. Both sides include this header.
#pragma once

#include <cstddef>
#include <cstdint>

// Encodes `frames` pictures of packed RGB bytes [frames, height, width, 3] into an MP4 file at `path`: H.264 where
// libav has an encoder for it, else MPEG-4; yuv420p, BT.709; odd sizes are padded by repeating the last row or column.
// Returns 0 and the encoder's name in `message`, or 1 and what went wrong. Thread-safe for different paths.
extern "C" int tulle_video_write(const char* path, const std::uint8_t* rgb, std::int64_t frames, std::int64_t height,
                                 std::int64_t width, int frames_per_second, char* message, std::size_t message_size);

using TulleVideoWrite = decltype(&tulle_video_write);
inline constexpr const char* kTulleVideoEntry = "tulle_video_write";
inline constexpr const char* kTulleVideoFile = "libtulle_video.so";
