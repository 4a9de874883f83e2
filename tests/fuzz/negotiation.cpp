// The handshake as a client drives it. The first byte chooses the size of the pieces: whatever they
// are, it comes to the same, and what is sent stays in proportion to what was received.
#include <algorithm>
#include <vector>

#include "protocol/negotiation.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/protocol/plain_export_directory.hpp"

namespace {

using namespace gpunbd::protocol;
using gpunbd::fuzz::require;

constexpr std::size_t max_answer = 1024;  // bytes; of these exports to any one option

struct Outcome {
    Negotiation::Next next = Negotiation::Next::receive;
    std::size_t used = 0;
    std::vector<std::byte> output;
    std::string reason;
    bool operator==(const Outcome&) const = default;
};

Outcome run(std::span<const std::byte> input, std::size_t piece) {
    const test::PlainExportDirectory directory;
    Negotiation negotiation(directory);
    Outcome outcome;
    while (outcome.next == Negotiation::Next::receive && outcome.used < input.size()) {
        const auto rest = input.subspan(outcome.used);
        std::size_t used = 0;
        outcome.next = negotiation.feed(rest.first(std::min(piece, rest.size())), used);
        outcome.used += used;
        const auto output = negotiation.take_output();
        outcome.output.insert(outcome.output.end(), output.begin(), output.end());
    }
    outcome.reason = negotiation.reason();
    require(negotiation.asked().words.size() <= max_answer, "the words for the log are short");
    return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const auto input = std::as_bytes(std::span(data, size)).subspan(1);
    const Outcome whole = run(input, size);
    require(whole.output.size() <= max_answer * (1 + input.size() / 16), "answers in proportion");
    require(whole == run(input, std::size_t{1} + data[0]), "pieces come to the same");
    return 0;
}
