// Writes the contents of a volume to a file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "storage/devices/channel.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

struct ImageFormat {
    bool zstd = false;  // also if the name of the file ends in .zst; otherwise raw, with holes
    std::uint32_t threads = 1;  // that compress
};

// `progress` is called with the bytes of the volume that are done. The file gets its name when it
// is complete; otherwise nothing is left of it. Returns an error, if there is one. Blocks.
std::optional<std::string> save_image(Volume& volume, const ChannelOptions& channels,
                                      const std::string& path, const ImageFormat& format,
                                      const std::stop_token& stop,
                                      const std::function<void(std::uint64_t)>& progress);

}  // namespace gpunbd::storage
