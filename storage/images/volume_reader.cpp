#include "storage/images/volume_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpunbd::storage {

namespace {

// In bytes, between two calls of `progress`. A hole takes less time.
constexpr std::uint64_t longest_run = std::uint64_t{64} << 20;
constexpr std::uint64_t longest_hole = std::uint64_t{64} << 30;

}  // namespace

VolumeReader::VolumeReader(Volume& volume, const ChannelOptions& options)
    : volume_(volume), channels_(options) {
    for (Device* const device : volume.devices()) channels_.open(*device);
}

std::optional<std::string> VolumeReader::read(std::uint64_t size, const std::stop_token& stop,
                                              VolumeSink& sink,
                                              const std::function<void(std::uint64_t)>& progress) {
    for (std::uint64_t at = 0; at != size;) {
        if (stop.stop_requested()) return "cancelled";
        // What a smaller volume has dropped reads as zeroes.
        const Volume::Run run = volume_.contents_run_at(at, std::min(longest_hole, size - at));
        const std::uint64_t length =
            run.device == 0 ? run.length : std::min(longest_run, run.length);
        std::optional<std::string> why = run.device == 0 ? sink.hole(length) : sink.run(length);
        if (!why && run.device != 0) why = read({at, length}, stop, sink);
        if (why) return why;
        at += length;
        progress(at);
        if (volume_.size() != size) return "it was resized meanwhile; save it again";
    }
    return {};
}

std::optional<std::string> VolumeReader::read(Range range, const std::stop_token& stop,
                                              VolumeSink& sink) {
    const TransferContext context{.volume = volume_, .channels = channels_, .account = account_};
    ReadTransfer transfer;
    transfer.begin(context, *this, range);
    while (!transfer.all_taken()) {
        ReadTransfer::Piece piece;
        if (!transfer.next(piece)) {
            if (transfer.status() != Status::ok) {
                const std::uint64_t failed_at = transfer.failed_at();
                settle(transfer);
                return fmt::format("a device cannot be read, at offset {}", failed_at);
            }
            wait_for_device(channels_);
            continue;
        }
        channels_.poll();  // copies for the next pieces run meanwhile
        std::optional<std::string> why =
            stop.stop_requested() ? "cancelled" : sink.data(piece.data, piece.length);
        transfer.give_back();
        if (!why) continue;
        settle(transfer);
        return why;
    }
    return {};
}

void VolumeReader::settle(ReadTransfer& transfer) {
    transfer.abandon();
    while (!transfer.idle()) wait_for_device(channels_);
}

}  // namespace gpunbd::storage
