#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <variant>

#include "storage/devices/channel.hpp"
#include "storage/devices/channels.hpp"
#include "storage/pages/volume.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::storage {

// Writes a volume, on a thread of its own with channels of its own.
class VolumeWriter final : private TransferOwner {
 public:
    // For the calling thread, which also destroys it. Throws what Device::open_channel() throws.
    VolumeWriter(Volume& volume, const ChannelOptions& options);

    // Writes `length` bytes at `offset`. `fill` stores the next bytes in the
    // memory of the volume, in order, all of each span. Both return an error, if there is one.
    using Fill = std::function<std::optional<std::string>(std::span<std::byte> memory)>;
    std::optional<std::string> write(std::uint64_t offset, std::uint64_t length, const Fill& fill);

 private:
    void transfer_moved(Transfer& /*transfer*/) override {}

    Volume& volume_;
    Channels channels_;
    ClientAccount account_;
};

// Reads the contents of a volume from a file that save_image() or another program has written.

// The size of the contents, in bytes, or the reason why the file is no image.
std::variant<std::uint64_t, std::string> image_size(const std::string& path);

// What happens if the file has more than the volume: the problem is reported, or the volume gets
// the beginning.
enum class LargerImage : std::uint8_t { refused, cut };

// Why a volume of so many bytes cannot have all of the file.
std::string larger_image_error(const std::string& path, std::uint64_t image, std::uint64_t volume);

// Writes the data of the file to a volume without contents. `progress` is called with the bytes of
// the contents that are done. Returns an error, if there is one. Blocks.
std::optional<std::string> restore_image(const std::string& path, Volume& volume,
                                         const ChannelOptions& channels,
                                         const std::stop_token& stop,
                                         const std::function<void(std::uint64_t)>& progress,
                                         LargerImage larger = LargerImage::refused);

}  // namespace gpunbd::storage
