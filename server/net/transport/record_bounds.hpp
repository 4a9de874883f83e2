// Finds the bounds of TLS records in a byte stream by their headers.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

class RecordBounds {
 public:
    static constexpr std::size_t header_size = 5;  // bytes: type, version, length

    // Bytes up to the end of the header or the record.
    std::size_t left() const {
        return header_filled_ < header_size ? header_size - header_filled_ : body_left_;
    }
    // true: these bytes complete a record.
    bool take(std::span<const char> bytes) {
        GPUNBD_ASSERT(bytes.size() <= left(), "bytes are taken up to the next bound");
        if (header_filled_ < header_size) {
            for (const char byte : bytes)
                header_[header_filled_++] = static_cast<unsigned char>(byte);
            if (header_filled_ < header_size) return false;
            length_ = body_left_ = std::size_t{header_[3]} << 8 | header_[4];
        } else {
            body_left_ -= bytes.size();
        }
        if (body_left_ != 0) return false;
        header_filled_ = 0;
        return true;
    }
    // Length of the last record whose header is complete, without the header.
    std::size_t length() const { return length_; }

 private:
    std::array<unsigned char, header_size> header_{};
    std::size_t header_filled_ = 0;
    std::size_t body_left_ = 0;  // once the header is complete
    std::size_t length_ = 0;
};

}  // namespace gpunbd::server
