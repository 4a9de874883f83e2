// What a volume holds, as far as it is known. A byte is unknown while a change of it is under way,
// after one that failed, and where two overlapped: the protocol orders neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpunbd::fuzz {

class Shadow {
 public:
    using Time = std::uint32_t;  // counts beginnings and ends of changes

    explicit Shadow(std::size_t size) : bytes_(size) {}

    std::size_t size() const { return bytes_.size(); }
    Time now() const { return now_; }
    Time begin_change(std::size_t offset, std::size_t length) {
        ++now_;
        for (std::size_t i = offset; i != offset + length; ++i) {
            ++bytes_[i].changes;
            bytes_[i].changed_at = now_;
        }
        return now_;
    }
    // `value(i)`: what byte i of the range was given. `began`: as begin_change() said.
    template <typename Value>
    void end_change(std::size_t offset, std::size_t length, Time began, bool succeeded,
                    Value value) {
        ++now_;
        for (std::size_t i = 0; i != length; ++i) {
            Byte& byte = bytes_[offset + i];
            byte.known = succeeded && byte.changed_at == began;
            byte.value = byte.known ? value(i) : std::byte{0};
            --byte.changes;
            byte.changed_at = now_;
        }
    }
    // Could a request that was under way since `asked` have found this byte to be `value`?
    bool may_be(std::size_t at, std::byte value, Time asked) const {
        const Byte& byte = bytes_[at];
        return byte.changes != 0 || byte.changed_at > asked || !byte.known || byte.value == value;
    }

 private:
    struct Byte {
        Time changed_at = 0;
        std::uint16_t changes = 0;  // under way
        bool known = true;
        std::byte value{0};
    };
    std::vector<Byte> bytes_;
    Time now_ = 0;
};

}  // namespace gpunbd::fuzz
