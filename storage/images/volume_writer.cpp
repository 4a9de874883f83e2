#include "storage/images/volume_writer.hpp"

#include <sys/uio.h>

#include <array>

#include "storage/devices/store.hpp"
#include "storage/images/wait_for_device.hpp"

namespace gpunbd::storage {

VolumeWriter::VolumeWriter(Volume& volume, const ChannelOptions& options)
    : volume_(volume), channels_(options) {
    for (Device* const device : volume.devices()) channels_.open(*device);
}

std::string VolumeWriter::write(std::uint64_t offset, std::uint64_t length, const Fill& fill) {
    const TransferContext context{.volume = volume_, .channels = channels_, .account = account_};
    WriteTransfer transfer;
    transfer.begin(context, *this, {offset, length});
    std::string why;
    while (!transfer.done()) {
        std::array<iovec, 1> lent{};
        if (why.empty() && transfer.status() == Status::ok && transfer.lend(lent) != 0) {
            why = fill({static_cast<std::byte*>(lent[0].iov_base), lent[0].iov_len});
            if (why.empty()) {
                transfer.filled(lent[0].iov_len);
                continue;
            }
        }
        if (!why.empty() || transfer.status() != Status::ok) transfer.abandon();
        if (!transfer.done()) wait_for_device(channels_);
    }
    store_fence();
    if (!why.empty()) return why;
    if (transfer.status() == Status::no_space) return "there is no memory for the contents";
    return transfer.status() == Status::ok ? std::string() : "a device cannot be written";
}

}  // namespace gpunbd::storage
