// The known contents of a volume. A byte is unknown while it is being changed, after a failed
// change, and after overlapping changes, because the protocol does not order them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpunbd::fuzz {

class Shadow {
 public:
    using Time = std::uint32_t;  // counts the begins and ends of changes

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
    // `value(i)`: the new value of byte i of the range. `began`: the result of begin_change().
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
    // Whether a request that was sent at `asked` may have found `value` in this byte.
    bool may_be(std::size_t at, std::byte value, Time asked) const {
        const Byte& byte = bytes_[at];
        return byte.changes != 0 || byte.changed_at > asked || !byte.known || byte.value == value;
    }

 private:
    struct Byte {
        Time changed_at = 0;
        std::uint16_t changes = 0;  // in flight
        bool known = true;
        std::byte value{0};
    };
    std::vector<Byte> bytes_;
    Time now_ = 0;
};

}  // namespace gpunbd::fuzz
