// Reads the contents of a volume from a file that save_image() or another program has written.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <variant>

#include "storage/devices/channel.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

// The size of the contents, in bytes, or the reason why the file is no image.
std::variant<std::uint64_t, std::string> image_size(const std::string& path);

// What happens if the file has more than the volume: the problem is reported, or the volume gets
// the beginning.
enum class LargerImage : std::uint8_t { refused, cut };

// Why a volume of so many bytes cannot have all of the file.
std::string larger_image_error(const std::string& path, std::uint64_t image, std::uint64_t volume);

// Writes the data of the file to a volume without contents. `progress` is called with the bytes of
// the contents that are done. Returns the problem; empty: none. Blocks.
std::string restore_image(const std::string& path, Volume& volume, const ChannelOptions& channels,
                          const std::stop_token& stop,
                          const std::function<void(std::uint64_t)>& progress,
                          LargerImage larger = LargerImage::refused);

}  // namespace gpunbd::storage
