#include "storage/images/restore_image.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "storage/devices/store.hpp"
#include "storage/images/image_file.hpp"
#include "storage/images/volume_reader.hpp"

namespace gpunbd::storage {

namespace {

using Progress = std::function<void(std::uint64_t)>;

constexpr const char* cancelled = "cancelled";
constexpr std::uint64_t step = std::uint64_t{64} << 20;  // bytes between two calls of `progress`

// `size`: of the contents that are restored, from the beginning of the file.
std::optional<std::string> restore_raw(const ImageFile& file, std::uint64_t size,
                                       VolumeWriter& writer, const std::stop_token& stop,
                                       const Progress& progress) {
    std::uint64_t at = 0;
    while (const auto data = file.next_data(at)) {
        if (data->begin >= size) break;
        const std::uint64_t end = std::min(data->end, size);
        for (at = data->begin; at != end;) {
            const std::uint64_t length = std::min(step, end - at);
            std::uint64_t from = at;
            std::optional<std::string> why = writer.write(
                at, length, [&](std::span<std::byte> memory) -> std::optional<std::string> {
                    if (stop.stop_requested()) return std::string(cancelled);
                    std::optional<std::string> wrong = file.read(from, memory);
                    from += memory.size();
                    return wrong;
                });
            if (why) return why;
            at += length;
            progress(at);
        }
    }
    return {};
}

class CompressedImage {
 public:
    CompressedImage(const ImageFile& file, std::uint64_t size, VolumeWriter& writer,
                    const std::stop_token& stop)
        : file_(file),
          size_(size),
          writer_(writer),
          stop_(stop),
          context_(ZSTD_createDCtx()),
          in_(ZSTD_DStreamInSize()) {}

    std::optional<std::string> restore(const Progress& progress) {
        if (!context_) return "no memory to decompress";
        offset_ = ImageRecord::bytes;  // behind the first record, which ImageFile has read
        for (std::uint64_t at = 0;;) {
            if (stop_.stop_requested()) return cancelled;
            std::array<std::byte, ImageRecord::bytes> bytes{};
            if (auto why = file_.read(offset_, bytes)) return why;
            offset_ += bytes.size();
            const auto record = ImageRecord::decode(bytes);
            if (!record || record->kind == ImageRecord::Kind::image) return damaged();
            if (record->kind == ImageRecord::Kind::end) {
                if (record->length == at && at == file_.size()) return std::nullopt;
                return damaged();
            }
            if (record->length == 0 || record->length > file_.size() - at) return damaged();
            if (record->kind == ImageRecord::Kind::hole) {
                // Only forward, so that this loop ends.
                if (record->skip > file_.file_size()) return damaged();
                offset_ += record->skip;
                progress(at + record->length);
            } else if (auto why = run(at, std::min(record->length, size_ - at), progress)) {
                return why;
            }
            at += record->length;
            if (at >= size_ && size_ != file_.size()) return {};
        }
    }

 private:
    struct Free {
        void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
    };

    std::string damaged() const {
        return file_.problem(fmt::format("it is damaged at byte {}", offset_));
    }

    std::optional<std::string> run(std::uint64_t at, std::uint64_t length,
                                   const Progress& progress) {
        have_ = {in_.data(), 0, 0};
        ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
        ended_ = false;
        std::optional<std::string> why;
        for (std::uint64_t done = 0; done != length && !why;) {
            const std::uint64_t part = std::min(step, length - done);
            why = writer_.write(at + done, part,
                                [this](std::span<std::byte> memory) { return decompress(memory); });
            done += part;
            if (!why) progress(at + done);
        }
        if (at + length == size_ && size_ != file_.size()) return why;
        // The checksum follows the last byte.
        while (!why && !ended_) why = decompress_some({});
        if (!why) offset_ -= have_.size - have_.pos;  // what belongs to the next record
        return why;
    }

    std::optional<std::string> decompress(std::span<std::byte> memory) {
        // The memory may be a mapping of a device, which zstd must not read.
        std::array<std::byte, std::size_t{64} << 10> part;
        while (!memory.empty()) {
            const std::span<std::byte> to(part.data(), std::min(part.size(), memory.size()));
            out_ = 0;
            while (out_ != to.size()) {
                if (ended_) return damaged();
                if (auto why = decompress_some(to)) return why;
            }
            std::memcpy(memory.data(), to.data(), to.size());
            memory = memory.subspan(to.size());
        }
        return {};
    }

    // Continues at out_ of `to`.
    std::optional<std::string> decompress_some(std::span<std::byte> to) {
        if (stop_.stop_requested()) return cancelled;
        if (have_.pos == have_.size) {
            std::size_t got = 0;
            if (auto why = file_.read_some(offset_, in_, got)) return why;
            if (got == 0) return file_.problem("it is damaged: it is too short");
            offset_ += got;
            have_ = {in_.data(), got, 0};
        }
        const std::size_t before = have_.pos;
        ZSTD_outBuffer out{to.data(), to.size(), to.empty() ? 0 : out_};
        const std::size_t left = ZSTD_decompressStream(context_.get(), &out, &have_);
        if (ZSTD_isError(left) != 0) return damaged();
        ended_ = left == 0;
        // A run that is longer than its record makes no progress.
        if (to.empty() && !ended_ && have_.pos == before) return damaged();
        if (!to.empty()) out_ = out.pos;
        return {};
    }

    const ImageFile& file_;
    const std::uint64_t size_;  // of the contents that are restored
    VolumeWriter& writer_;
    const std::stop_token& stop_;
    const std::unique_ptr<ZSTD_DCtx, Free> context_;
    std::vector<std::byte> in_;
    ZSTD_inBuffer have_{};      // the part of in_ that is not decompressed
    std::uint64_t offset_ = 0;  // in the file, behind in_
    std::size_t out_ = 0;
    bool ended_ = false;  // the frame
};

}  // namespace

VolumeWriter::VolumeWriter(Volume& volume, const ChannelOptions& options)
    : volume_(volume), channels_(options) {
    for (Device* const device : volume.devices()) channels_.open(*device);
}

std::optional<std::string> VolumeWriter::write(std::uint64_t offset, std::uint64_t length,
                                               const Fill& fill) {
    const TransferContext context{.volume = volume_, .channels = channels_, .account = account_};
    WriteTransfer transfer;
    transfer.begin(context, *this, {offset, length});
    std::optional<std::string> why;
    while (!transfer.done()) {
        std::array<iovec, 1> lent{};
        if (!why && transfer.status() == Status::ok && transfer.lend(lent) != 0) {
            why = fill({static_cast<std::byte*>(lent[0].iov_base), lent[0].iov_len});
            if (!why) {
                transfer.filled(lent[0].iov_len);
                continue;
            }
        }
        if (why || transfer.status() != Status::ok) transfer.abandon();
        if (!transfer.done()) wait_for_device(channels_);
    }
    store_fence();
    if (why) return why;
    if (transfer.status() == Status::no_space) return "there is no memory for the contents";
    if (transfer.status() != Status::ok) return "a device cannot be written";
    return std::nullopt;
}

std::variant<std::uint64_t, std::string> image_size(const std::string& path) {
    ImageFile file(path);
    if (auto why = file.open()) return *std::move(why);
    return file.size();
}

std::string larger_image_error(const std::string& path, std::uint64_t image, std::uint64_t volume) {
    return fmt::format("{}: it has {} bytes, and the export only {}", path, image, volume);
}

std::optional<std::string> restore_image(const std::string& path, Volume& volume,
                                         const ChannelOptions& channels,
                                         const std::stop_token& stop, const Progress& progress,
                                         LargerImage larger) {
    try {
        ImageFile file(path);
        if (auto why = file.open()) return why;
        if (file.size() > volume.size() && larger == LargerImage::refused) {
            return larger_image_error(path, file.size(), volume.size());
        }
        const std::uint64_t size = std::min(file.size(), volume.size());
        VolumeWriter writer(volume, channels);
        std::optional<std::string> why =
            file.compressed() ? CompressedImage(file, size, writer, stop).restore(progress)
                              : restore_raw(file, size, writer, stop, progress);
        // Also instead of damage, which a file that is being written seems to have.
        if (why != cancelled && file.changed()) {
            return file.problem(
                "another program wrote to it meanwhile; restore it again when it is complete");
        }
        return why;
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace gpunbd::storage
