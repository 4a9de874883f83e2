#include "storage/images/save_image.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/images/image_file.hpp"
#include "storage/images/replaced_file.hpp"
#include "storage/images/volume_reader.hpp"

namespace gpunbd::storage {

namespace {

// Appends contents to a compressed image, see image_file.hpp.
class ZstdWriter final : public VolumeSink {
 public:
    ZstdWriter(ReplacedFile& file, std::uint32_t threads) : file_(file), threads_(threads) {}

    // Each returns an error, if there is one.
    std::optional<std::string> begin(std::uint64_t size);
    std::optional<std::string> hole(std::uint64_t length) override;
    std::optional<std::string> run(std::uint64_t length) override;
    std::optional<std::string> data(const std::byte* from, std::uint64_t length) override;
    std::optional<std::string> end(std::uint64_t size);

 private:
    struct Free {
        void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    };
    using Frame = std::vector<std::byte>;

    std::optional<std::string> compress(const std::byte* from, std::size_t length, bool last);
    // A frame of that many zeroes.
    std::optional<std::string> zeroes(std::uint64_t length, Frame& out);

    ReplacedFile& file_;
    const std::uint32_t threads_;
    std::unique_ptr<ZSTD_CCtx, Free> context_;
    std::uint64_t left_ = 0;  // bytes of the run
    std::vector<std::byte> out_;
    Frame long_hole_;  // a frame of max_zeroes, once it was needed
};

constexpr std::uint64_t max_zeroes = std::uint64_t{1} << 30;  // of one frame

const std::vector<std::byte>& zero_block() {
    static const std::vector<std::byte> block(std::size_t{1} << 20);
    return block;
}

std::optional<std::string> append(ReplacedFile& file, const ImageRecord& record) {
    const auto bytes = record.encode();
    return file.append(bytes.data(), bytes.size());
}

std::string problem(std::size_t code) { return fmt::format("zstd: {}", ZSTD_getErrorName(code)); }

std::optional<std::string> ZstdWriter::begin(std::uint64_t size) {
    context_.reset(ZSTD_createCCtx());
    if (!context_) return "no memory to compress";
    // The fastest level, to keep up with the disk.
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
    if (threads_ > 1) {
        const std::size_t code =
            ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_nbWorkers, static_cast<int>(threads_));
        if (ZSTD_isError(code) != 0) {
            return "this libzstd has no threads; use one";
        }
    }
    out_.resize(ZSTD_CStreamOutSize());
    return append(file_, {.kind = ImageRecord::Kind::image, .length = size});
}

std::optional<std::string> ZstdWriter::run(std::uint64_t length) {
    GPUNBD_ASSERT(left_ == 0, "the data of a run is complete before the next run begins");
    left_ = length;
    return append(file_, {.kind = ImageRecord::Kind::data, .length = length});
}

std::optional<std::string> ZstdWriter::data(const std::byte* from, std::uint64_t length) {
    std::optional<std::string> why;
    while (length != 0 && !why) {
        const std::uint64_t part =
            from == nullptr ? std::min<std::uint64_t>(length, zero_block().size()) : length;
        length -= part;
        GPUNBD_ASSERT(part <= left_, "no more data follows than the length of the run");
        left_ -= part;
        why = compress(from == nullptr ? zero_block().data() : from, part, left_ == 0);
    }
    return why;
}

std::optional<std::string> ZstdWriter::compress(const std::byte* from, std::size_t length,
                                                bool last) {
    GPUNBD_ASSERT(context_ != nullptr && !out_.empty(), "an image begins before its data");
    ZSTD_inBuffer in{from, length, 0};
    for (;;) {
        ZSTD_outBuffer out{out_.data(), out_.size(), 0};
        const std::size_t left =
            ZSTD_compressStream2(context_.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left) != 0) return problem(left);
        if (auto why = file_.append(out_.data(), out.pos)) return why;
        if (last ? left == 0 : in.pos == in.size) return {};
    }
}

std::optional<std::string> ZstdWriter::zeroes(std::uint64_t length, Frame& out) {
    const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
    if (!context) return "no memory to compress";
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 1);
    while (length != 0) {
        const auto part =
            static_cast<std::size_t>(std::min<std::uint64_t>(length, zero_block().size()));
        length -= part;
        ZSTD_inBuffer in{zero_block().data(), part, 0};
        std::size_t left = 0;
        do {
            ZSTD_outBuffer to{out_.data(), out_.size(), 0};
            left = ZSTD_compressStream2(context.get(), &to, &in,
                                        length == 0 ? ZSTD_e_end : ZSTD_e_continue);
            if (ZSTD_isError(left) != 0) return problem(left);
            out.insert(out.end(), out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(to.pos));
        } while (in.pos != in.size || (length == 0 && left != 0));
    }
    return {};
}

std::optional<std::string> ZstdWriter::hole(std::uint64_t length) {
    GPUNBD_ASSERT(left_ == 0, "the data of a run is complete before a hole begins");
    const std::uint64_t long_ones = length / max_zeroes;
    if (long_ones != 0 && long_hole_.empty()) {
        if (auto why = zeroes(max_zeroes, long_hole_)) return why;
    }
    Frame rest;
    if (auto why = zeroes(length % max_zeroes, rest)) return why;
    std::optional<std::string> why =
        append(file_, {.kind = ImageRecord::Kind::hole,
                       .length = length,
                       .skip = long_ones * long_hole_.size() + rest.size()});
    for (std::uint64_t i = 0; i != long_ones && !why; ++i) {
        why = file_.append(long_hole_.data(), long_hole_.size());
    }
    return why ? why : file_.append(rest.data(), rest.size());
}

std::optional<std::string> ZstdWriter::end(std::uint64_t size) {
    return append(file_, {.kind = ImageRecord::Kind::end, .length = size});
}

using Progress = std::function<void(std::uint64_t)>;

constexpr std::string_view compressed_suffix = ".zst";

class RawWriter final : public VolumeSink {
 public:
    explicit RawWriter(ReplacedFile& file) : file_(file) {}

    std::optional<std::string> hole(std::uint64_t length) override { return file_.skip(length); }
    std::optional<std::string> run(std::uint64_t /*length*/) override { return {}; }
    std::optional<std::string> data(const std::byte* from, std::uint64_t length) override {
        return from == nullptr ? file_.skip(length) : file_.append(from, length);
    }

 private:
    ReplacedFile& file_;
};

std::optional<std::string> save_to(ReplacedFile& file, Volume& volume,
                                   const ChannelOptions& channels, const std::string& path,
                                   const ImageFormat& format, const std::stop_token& stop,
                                   const Progress& progress) {
    VolumeReader reader(volume, channels);
    const std::uint64_t size = volume.size();
    if (!format.zstd && !path.ends_with(compressed_suffix)) {
        RawWriter writer(file);
        return reader.read(size, stop, writer, progress);
    }
    ZstdWriter writer(file, format.threads);
    std::optional<std::string> why = writer.begin(size);
    if (!why) why = reader.read(size, stop, writer, progress);
    return why ? why : writer.end(size);
}

}  // namespace

std::optional<std::string> save_image(Volume& volume, const ChannelOptions& channels,
                                      const std::string& path, const ImageFormat& format,
                                      const std::stop_token& stop, const Progress& progress) {
    try {
        ReplacedFile file(path);
        if (auto why = file.create()) return why;
        std::optional<std::string> why =
            save_to(file, volume, channels, path, format, stop, progress);
        return why ? why : file.publish();
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace gpunbd::storage
