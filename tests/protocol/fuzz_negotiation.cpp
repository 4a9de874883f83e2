// libFuzzer target: the whole protocol as a client drives it, a handshake and then requests through
// the gate. The first byte chooses the size of the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <variant>

#include "protocol/gate.hpp"
#include "tests/protocol/plain_export_directory.hpp"

using namespace gpunbd::protocol;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const test::PlainExportDirectory directory;
    Negotiation negotiation(directory);
    const std::size_t piece = std::size_t{1} + data[0];
    auto rest = std::as_bytes(std::span(data, size)).subspan(1);

    auto next = Negotiation::Next::receive;
    while (next == Negotiation::Next::receive && !rest.empty()) {
        std::size_t used = 0;
        next = negotiation.feed(rest.first(std::min(piece, rest.size())), used);
        rest = rest.subspan(used);
        negotiation.take_output();
    }
    if (next != Negotiation::Next::transmit) return 0;

    const ExportInfo& info = negotiation.negotiated().export_info;
    for (; rest.size() >= request_size; rest = rest.subspan(request_size)) {
        const auto request = decode_request(rest.first<request_size>());
        if (!request) return 0;
        const Validated validated = validate(*request, negotiation.negotiated());
        const auto* command = std::get_if<Command>(&validated);
        if (command &&
            (command->offset > info.size || command->length > info.size - command->offset))
            std::abort();
    }
    return 0;
}
