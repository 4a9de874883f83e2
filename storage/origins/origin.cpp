#include "storage/origins/origin.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gpunbd::storage {

namespace {

using Operation = OriginTimes::Operation;

template <typename Request>
Origin::Error timed(OriginTimes& times, Operation operation, Request request) {
    const auto began = TraceClock::now();
    Origin::Error why = request();
    times.record(operation, TraceClock::now() - began);
    return why;
}

}  // namespace

Origin::Error Origin::read(std::uint64_t offset, std::span<std::byte> to) {
    return timed(times_, Operation::read, [&] { return do_read(offset, to); });
}

Origin::Error Origin::write(std::uint64_t offset, std::span<const std::byte> from) {
    return timed(times_, Operation::write, [&] { return do_write(offset, from); });
}

Origin::Error Origin::zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) {
    return timed(times_, Operation::zero, [&] { return do_zero(offset, length, keeps_space); });
}

Origin::Error Origin::flush() {
    return timed(times_, Operation::flush, [&] { return do_flush(); });
}

Origin::Error Origin::write_zeroes(std::uint64_t offset, std::uint64_t length) {
    // Aligned as reads and writes past the page cache have to be. Not constant, so that it takes no
    // space in the program.
    alignas(4096) static std::array<std::byte, std::size_t{1} << 20> zeroes{};
    while (length != 0) {
        const std::size_t part = std::min<std::uint64_t>(length, zeroes.size());
        if (auto why = do_write(offset, std::span(std::as_const(zeroes)).first(part))) return why;
        offset += part;
        length -= part;
    }
    return {};
}

}  // namespace gpunbd::storage
