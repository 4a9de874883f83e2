// Requests through the gate, and the replies to them: a command is always in range, aligned and
// permitted, and what the encoder writes says what it was told to.
#include <variant>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/gate.hpp"
#include "protocol/reply_encoder.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/fuzz/script.hpp"

namespace {

using namespace gpunbd::protocol;
using gpunbd::fuzz::require;
using gpunbd::fuzz::Script;

NegotiatedOptions negotiated_by(Script& script) {
    NegotiatedOptions negotiated;
    const std::uint32_t choices = script.byte();
    ExportInfo& info = negotiated.export_info;
    negotiated.structured_replies = (choices & 1) != 0;
    negotiated.base_allocation = (choices & 3) == 3;
    info.read_only = (choices & 4) != 0;
    info.minimum_block = 1U << (script.byte() % 13);
    info.size = std::uint64_t{script.word()} << (script.byte() % 48);
    info.size -= info.size % info.minimum_block;
    return negotiated;
}

bool permitted(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    switch (command.type) {
        case CommandType::write:
            return !info.read_only && command.length <= info.maximum_payload;
        case CommandType::trim:
        case CommandType::write_zeroes:
            return !info.read_only;
        case CommandType::read:
            return command.length <= info.maximum_payload;
        case CommandType::block_status:
            return negotiated.base_allocation && command.length != 0;
        case CommandType::disc:
        case CommandType::flush:
            return command.offset == 0 && command.length == 0;
        case CommandType::cache:
            return true;
    }
    return false;
}

// A reply in one piece. `error`: what it has to say.
void check_end(const ReplyHeader& header, std::size_t size, std::uint64_t cookie, Error error) {
    const std::byte* const at = header.data();
    if (load_be<std::uint32_t>(at) == simple_reply_magic) {
        require(size == simple_reply_size, "a simple reply has 16 bytes");
        require(load_be<std::uint32_t>(at + 4) == static_cast<std::uint32_t>(error), "its error");
        require(load_be<std::uint64_t>(at + 8) == cookie, "its cookie");
        return;
    }
    require(load_be<std::uint32_t>(at) == structured_reply_magic, "a magic number");
    require(load_be<std::uint16_t>(at + 4) == chunk_flag_done, "it is the last chunk");
    require(load_be<std::uint64_t>(at + 8) == cookie, "the chunk's cookie");
    require(size == chunk_header_size + load_be<std::uint32_t>(at + 16), "the chunk's length");
    const bool failed = (load_be<std::uint16_t>(at + 6) & 0x8000U) != 0;
    require(failed == (error != Error::none), "an error is a chunk of errors");
    if (failed) {
        require(load_be<std::uint32_t>(at + 20) == static_cast<std::uint32_t>(error), "which");
    }
}

void check_read(const ReplyEncoder& encoder, const Command& read) {
    ReplyHeader header{};
    const std::byte* const at = header.data();
    const auto length = static_cast<std::uint32_t>(read.length);
    if (length == 0) return;
    const std::size_t whole = encoder.whole(header, read);
    if (load_be<std::uint32_t>(at) == simple_reply_magic) {
        check_end(header, whole, read.cookie, Error::none);
        return;
    }
    for (const bool hole : {false, true}) {
        if (hole) {
            require(encoder.hole(header, read, read.offset, length, true) == max_reply_header,
                    "a hole is complete in itself");
            require(load_be<std::uint32_t>(at + 16) == 12, "the length of a hole's payload");
            require(load_be<std::uint32_t>(at + 28) == length, "the hole's length");
        } else {
            require(encoder.data(header, read, read.offset, length, true) == whole, "one form");
            require(load_be<std::uint32_t>(at + 16) == 8 + length, "the offset and the data");
        }
        require(load_be<std::uint64_t>(at + 8) == read.cookie, "the chunk's cookie");
        require(load_be<std::uint64_t>(at + 20) == read.offset, "the chunk's offset");
    }
}

void check_command(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    require(command.offset <= info.size && command.length <= info.size - command.offset, "range");
    require(command.offset % info.minimum_block == 0 && command.length % info.minimum_block == 0,
            "alignment");
    require(permitted(command, negotiated), "a command that is permitted");
    const ReplyEncoder encoder(negotiated);
    ReplyHeader header{};
    check_end(header, encoder.success(header, command), command.cookie, Error::none);
    check_end(header, encoder.error(header, command.cookie, Error::eio), command.cookie,
              Error::eio);
    if (command.type == CommandType::read) check_read(encoder, command);
    if (command.type == CommandType::block_status) {
        std::vector<std::byte> out;
        const Extent extent{.length = static_cast<std::uint32_t>(command.length), .status = 3};
        encoder.block_status(out, command, {&extent, 1});
        require(out.size() == chunk_header_size + 12, "one extent");
        require(load_be<std::uint32_t>(out.data() + 24) == command.length, "the extent's length");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Script script(data, size);
    const NegotiatedOptions negotiated = negotiated_by(script);
    while (!script.over()) {
        const auto bytes = script.bytes(request_size);
        if (bytes.size() < request_size) return 0;
        const auto wire = bytes.first<request_size>();
        const auto request = decode_request(wire);
        require(request.has_value() == (load_be<std::uint32_t>(wire.data()) == request_magic),
                "the magic number decides");
        if (!request) continue;
        std::array<std::byte, request_size> again{};
        encode_request(*request, again);
        require(std::equal(again.begin(), again.end(), wire.begin()), "encoded as it came");
        const Validated validated = validate(*request, negotiated);
        if (const auto* command = std::get_if<Command>(&validated)) {
            require(command->cookie == request->cookie, "the command's cookie");
            check_command(*command, negotiated);
        } else if (const auto* refusal = std::get_if<Refusal>(&validated)) {
            require(refusal->cookie == request->cookie, "the refusal's cookie");
            require(refusal->error != Error::none, "a refusal says why");
            require(refusal->discard <= std::uint64_t{2} * max_payload, "little is discarded");
        }
    }
    return 0;
}
