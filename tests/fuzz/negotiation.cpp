// The handshake as a client drives it. The first byte of the input chooses the size of the pieces:
// the result must not depend on it, and the output must stay in proportion to the input. The second
// byte chooses the TLS mode, and whether TLS is active.
#include <algorithm>
#include <vector>

#include "protocol/negotiation.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/protocol/plain_export_directory.hpp"
#include "tests/protocol/wire.hpp"

namespace {

using namespace gpunbd::protocol;
using gpunbd::fuzz::require;

constexpr std::size_t max_answer = 1024;  // bytes; of these exports, to any one option

struct Outcome {
    Negotiation::Next next = Negotiation::Next::receive;
    std::size_t used = 0;
    std::vector<std::byte> output;
    std::string reason;
    bool operator==(const Outcome&) const = default;
};

Outcome run(std::span<const std::byte> input, std::size_t piece, unsigned int tls) {
    const test::PlainExportDirectory directory(
        {{.name = "disk", .size = 1 << 20, .cached = true},
         {.name = "secret", .size = 4096, .tls_required = true}});
    constexpr TlsMode modes[] = {TlsMode::off, TlsMode::optional, TlsMode::required};
    Negotiation negotiation(directory, modes[tls % 3]);
    const bool active = tls % 3 != 0 && tls / 3 % 2 == 1;
    if (active) {
        std::size_t used = 0;
        const auto starttls =
            test::joined({wire::client_flags(), wire::option(wire::opt::starttls)});
        require(negotiation.feed(starttls, used) == Negotiation::Next::start_tls,
                "STARTTLS is accepted");
        negotiation.take_output();
        negotiation.enter_tls();
    }
    Outcome outcome;
    while (outcome.next == Negotiation::Next::more ||
           (outcome.next == Negotiation::Next::receive && outcome.used < input.size())) {
        const auto rest = input.subspan(outcome.used);
        std::size_t used = 0;
        outcome.next = negotiation.feed(rest.first(std::min(piece, rest.size())), used);
        outcome.used += used;
        const auto output = negotiation.take_output();
        require(output.size() <= Negotiation::max_output, "the output of one step is bounded");
        outcome.output.insert(outcome.output.end(), output.begin(), output.end());
    }
    require(tls % 3 != 0 && !active ? true : outcome.next != Negotiation::Next::start_tls,
            "STARTTLS is refused if TLS is off or active");
    require(outcome.next != Negotiation::Next::transmit || active || tls % 3 == 0 ||
                (tls % 3 == 1 && !negotiation.negotiated().export_info.tls_required),
            "an export that requires TLS is not served without it");
    outcome.reason = negotiation.reason();
    require(negotiation.asked().words.size() <= max_answer, "the log text is bounded");
    return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const auto input = std::as_bytes(std::span(data, size)).subspan(2);
    const Outcome whole = run(input, size, data[1]);
    require(whole.output.size() <= max_answer * (1 + input.size() / 16),
            "the output is proportional to the input");
    const Outcome pieces = run(input, std::size_t{1} + data[0], data[1]);
    // Bytes after STARTTLS are detected only if they arrive together with it.
    if (pieces.next == Negotiation::Next::start_tls) return 0;
    require(whole == pieces, "the size of the pieces does not change the result");
    return 0;
}
