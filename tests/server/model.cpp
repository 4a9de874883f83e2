#include "tests/server/model.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {

void Model::apply(const Ask& ask, bool succeeded) {
    const auto at = static_cast<std::ptrdiff_t>(ask.offset);
    switch (ask.type) {
        case CommandType::write: {
            const Bytes payload = payload_of(ask);
            std::copy(payload.begin(), payload.end(), bytes_.begin() + at);
            break;
        }
        case CommandType::trim:
        case CommandType::write_zeroes:
            std::fill_n(bytes_.begin() + at, ask.length, std::byte{0});
            break;
        default:
            return;
    }
    std::fill_n(known_.begin() + at, ask.length, succeeded ? 1 : 0);
}

void Model::ask(Client& client, const Ask& ask) {
    const Answer answer = client.ask(ask);
    REQUIRE(answer.error == Error::none);
    if (ask.type == CommandType::read) check(ask, answer);
    apply(ask, true);
}

void Model::check(const Ask& read, const Answer& answer) const {
    REQUIRE(answer.data.size() == read.length);
    if (std::equal(answer.data.begin(), answer.data.end(),
                   bytes_.begin() + static_cast<std::ptrdiff_t>(read.offset))) {
        return;
    }
    for (std::size_t i = 0; i != read.length; ++i) {
        const std::uint64_t at = read.offset + i;
        if (known_[at] == 0 || answer.data[i] == bytes_[at]) continue;
        CAPTURE(at);
        REQUIRE(answer.data[i] == bytes_[at]);
    }
}

}  // namespace gpunbd::server::test
