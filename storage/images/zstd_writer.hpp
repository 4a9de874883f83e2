// Appends contents to a compressed image, see compressed_format.hpp.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/images/replaced_file.hpp"
#include "storage/images/volume_reader.hpp"

namespace gpunbd::storage {

class ZstdWriter final : public VolumeSink {
 public:
    ZstdWriter(ReplacedFile& file, std::uint32_t threads) : file_(file), threads_(threads) {}

    // Each returns the problem; empty: none.
    std::string begin(std::uint64_t size);
    std::string hole(std::uint64_t length) override;
    std::string run(std::uint64_t length) override;
    std::string data(const std::byte* from, std::uint64_t length) override;
    std::string end(std::uint64_t size);

 private:
    struct Free {
        void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    };
    using Frame = std::vector<std::byte>;

    std::string compress(const std::byte* from, std::size_t length, bool last);
    // A frame of that many zeroes.
    std::string zeroes(std::uint64_t length, Frame& out);

    ReplacedFile& file_;
    const std::uint32_t threads_;
    std::unique_ptr<ZSTD_CCtx, Free> context_;
    std::uint64_t left_ = 0;  // bytes of the run
    std::vector<std::byte> out_;
    Frame long_hole_;  // a frame of max_zeroes, once it was needed
};

}  // namespace gpunbd::storage
