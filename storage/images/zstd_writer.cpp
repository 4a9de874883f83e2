#include "storage/images/zstd_writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "storage/assertions/assert.hpp"
#include "storage/images/compressed_format.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t max_zeroes = std::uint64_t{1} << 30;  // of one frame

const std::vector<std::byte>& zero_block() {
    static const std::vector<std::byte> block(std::size_t{1} << 20);
    return block;
}

std::string append(ReplacedFile& file, const ImageRecord& record) {
    const auto bytes = record.encode();
    return file.append(bytes.data(), bytes.size());
}

std::string problem(std::size_t code) { return fmt::format("zstd: {}", ZSTD_getErrorName(code)); }

}  // namespace

std::string ZstdWriter::begin(std::uint64_t size) {
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

std::string ZstdWriter::run(std::uint64_t length) {
    GPUNBD_ASSERT(left_ == 0, "the data of a run is complete before the next run begins");
    left_ = length;
    return append(file_, {.kind = ImageRecord::Kind::data, .length = length});
}

std::string ZstdWriter::data(const std::byte* from, std::uint64_t length) {
    std::string why;
    while (length != 0 && why.empty()) {
        const std::uint64_t part =
            from == nullptr ? std::min<std::uint64_t>(length, zero_block().size()) : length;
        length -= part;
        GPUNBD_ASSERT(part <= left_, "no more data follows than the length of the run");
        left_ -= part;
        why = compress(from == nullptr ? zero_block().data() : from, part, left_ == 0);
    }
    return why;
}

std::string ZstdWriter::compress(const std::byte* from, std::size_t length, bool last) {
    GPUNBD_ASSERT(context_ != nullptr && !out_.empty(), "an image begins before its data");
    ZSTD_inBuffer in{from, length, 0};
    for (;;) {
        ZSTD_outBuffer out{out_.data(), out_.size(), 0};
        const std::size_t left =
            ZSTD_compressStream2(context_.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left) != 0) return problem(left);
        if (std::string why = file_.append(out_.data(), out.pos); !why.empty()) return why;
        if (last ? left == 0 : in.pos == in.size) return {};
    }
}

std::string ZstdWriter::zeroes(std::uint64_t length, Frame& out) {
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

std::string ZstdWriter::hole(std::uint64_t length) {
    GPUNBD_ASSERT(left_ == 0, "the data of a run is complete before a hole begins");
    const std::uint64_t long_ones = length / max_zeroes;
    if (long_ones != 0 && long_hole_.empty()) {
        if (std::string why = zeroes(max_zeroes, long_hole_); !why.empty()) return why;
    }
    Frame rest;
    if (std::string why = zeroes(length % max_zeroes, rest); !why.empty()) return why;
    std::string why = append(file_, {.kind = ImageRecord::Kind::hole,
                                     .length = length,
                                     .skip = long_ones * long_hole_.size() + rest.size()});
    for (std::uint64_t i = 0; i != long_ones && why.empty(); ++i) {
        why = file_.append(long_hole_.data(), long_hole_.size());
    }
    return why.empty() ? file_.append(rest.data(), rest.size()) : why;
}

std::string ZstdWriter::end(std::uint64_t size) {
    return append(file_, {.kind = ImageRecord::Kind::end, .length = size});
}

}  // namespace gpunbd::storage
