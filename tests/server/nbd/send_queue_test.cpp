// Tests SendQueue alone: the bytes and their order do not depend on how much the socket accepts at
// once.
#include "server/nbd/send_queue.hpp"

#include <deque>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// Records the order of completions.
class CompletionRecorder final : public Reply {
 public:
    void sent() override {
        ++sents;
        if (on_sent) on_sent();
    }
    void resume() override {
        ++resumes;
        if (on_resume) on_resume();
    }

    int sents = 0;
    int resumes = 0;
    std::function<void()> on_sent;
    std::function<void()> on_resume;
};

class Texts {
 public:
    void add(const Reply* reply, const std::string& header, const std::string& payload = {},
             Reply* recorder = nullptr) {
        SendQueue::Item& item = queue.add(reply);
        items_.push_back(&item);
        std::memcpy(item.header.data(), header.data(), header.size());
        item.header_length = static_cast<std::uint8_t>(header.size());
        payloads_.push_back(payload);
        item.payload = reinterpret_cast<const std::byte*>(payloads_.back().data());
        item.payload_length = static_cast<std::uint32_t>(payload.size());
        item.reply = recorder;
    }
    // Sets, for each added item, the number of READ bytes that it answers.
    void count_reads(std::span<const std::uint32_t> read) {
        for (std::size_t i = 0; i != read.size(); ++i) items_.at(i)->read = read[i];
    }
    // Sends at most `max` bytes in at most `pieces` pieces, and returns the sent bytes.
    std::string send(std::size_t max, std::size_t pieces = 64) {
        std::vector<iovec> out(pieces);
        out.resize(queue.gather(out, SIZE_MAX));
        std::string text;
        for (const iovec& piece : out) {
            CHECK(piece.iov_len != 0);
            text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        }
        text.resize(std::min(text.size(), max));
        queue.sent(text.size());
        return text;
    }
    std::string send_all(std::size_t max = 1000, std::size_t pieces = 64) {
        std::string text;
        while (!queue.nothing_to_send()) text += send(max, pieces);
        return text;
    }

    SendQueue queue{nullptr};

 private:
    std::deque<std::string> payloads_;     // a deque keeps addresses stable
    std::vector<SendQueue::Item*> items_;  // room for a few hundred
};

TEST_CASE("send queue: sends parts of any length in any number of pieces") {
    for (std::size_t max = 1; max != 60; ++max) {
        for (std::size_t pieces = 2; pieces != 9; ++pieces) {
            CAPTURE(max);
            CAPTURE(pieces);
            Texts texts;
            CompletionRecorder recorder[6];
            std::vector<int> order;
            for (int i = 0; i != 6; ++i) recorder[i].on_sent = [&order, i] { order.push_back(i); };
            texts.add(nullptr, "head0:", "payload0.", &recorder[0]);
            texts.add(nullptr, "head1:", "", &recorder[1]);
            texts.add(nullptr, "", "payload2.", &recorder[2]);
            texts.add(nullptr, "head:");
            texts.add(nullptr, "", "p");
            texts.add(nullptr, "h", "q", &recorder[3]);
            texts.add(nullptr, "head4:", std::string(30, 'x'), &recorder[4]);
            texts.add(nullptr, "head5:", "end", &recorder[5]);
            CHECK(texts.queue.size() == 8);
            CHECK(texts.send_all(max, pieces) == "head0:payload0.head1:payload2.head:phqhead4:" +
                                                     std::string(30, 'x') + "head5:end");
            CHECK(order == std::vector{0, 1, 2, 3, 4, 5});
            CHECK(texts.queue.empty());
            CHECK(texts.queue.size() == 0);
        }
    }
}

TEST_CASE("send queue: READ bytes are counted when they are sent, a hole with its header") {
    Texts texts;
    texts.add(nullptr, "head:", std::string(10, 'r'));
    texts.add(nullptr, "hole:");
    texts.add(nullptr, "error", "text");
    texts.add(nullptr, "h", std::string(5, 'r'));
    const std::uint32_t read[] = {10, 4096, 0, 5};
    texts.count_reads(read);
    // The expected count after each sent byte.
    std::vector<std::uint64_t> expected(5, 0);
    for (std::uint64_t i = 1; i <= 10; ++i) expected.push_back(i);
    expected.insert(expected.end(), 4, 10);
    expected.insert(expected.end(), 1 + 9 + 1, 4106);
    for (std::uint64_t i = 1; i <= 5; ++i) expected.push_back(4106 + i);
    std::vector<std::uint64_t> counted;
    while (!texts.queue.nothing_to_send()) {
        texts.send(1);
        counted.push_back(texts.queue.read_sent());
    }
    CHECK(counted == expected);
}

TEST_CASE("send queue: a long payload is sent in a separate piece after its header") {
    const std::string payload(512 << 10, 'x');
    Texts texts;
    CompletionRecorder recorder;
    texts.add(nullptr, "1", "short");
    texts.add(nullptr, "long:", payload, &recorder);
    texts.add(nullptr, "", payload);
    texts.add(nullptr, "2", "short");
    texts.add(nullptr, "3");
    constexpr std::size_t all = 4 << 20;
    CHECK(texts.send(all) == "1short");
    CHECK(texts.send(3) == "lon");
    CHECK(texts.send(all) == "g:");
    CHECK(texts.send(1000) == payload.substr(0, 1000));
    CHECK(recorder.sents == 0);
    CHECK(texts.send(all) == payload.substr(1000));
    CHECK(recorder.sents == 1);
    CHECK(texts.send(all) == payload);
    CHECK(texts.send(all) == "2short3");
    CHECK(texts.queue.empty());
}

TEST_CASE("send queue: sent() may add items") {
    for (std::size_t max = 1; max != 20; ++max) {
        Texts texts;
        CompletionRecorder recorder;
        int left = 50;
        recorder.on_sent = [&] {
            if (--left != 0) texts.add(&recorder, std::to_string(left) + " ", "and ", &recorder);
        };
        texts.add(&recorder, "50 ", "and ", &recorder);
        texts.add(nullptr, "other ");
        std::string expected = "50 and other ";
        for (int i = 49; i != 0; --i) expected += std::to_string(i) + " and ";
        CHECK(texts.send_all(max) == expected);
    }
}

// Sent items are released even if the queue is never empty.
TEST_CASE("send queue: works while it is never empty for a long time") {
    for (const std::size_t max : {1U, 7U, 30U, 100U, 1000U}) {
        Texts texts;
        std::string expected;
        std::string text;
        for (int i = 0; i != 5000; ++i) {
            const std::string each = std::to_string(i) + ";";
            texts.add(nullptr, each);
            expected += each;
            if (texts.queue.size() > 300 || i % 3 == 0) text += texts.send(max, 700);
        }
        while (!texts.queue.nothing_to_send()) text += texts.send(1000);
        CHECK(text == expected);
    }
}

// A later burst must not allocate memory that an earlier burst has used.
TEST_CASE("send queue: its capacity depends on unsent items, not on how long it is not empty") {
    Texts texts;
    const auto add = [&] { texts.add(nullptr, "12345678"); };
    add();
    const std::size_t memory = texts.queue.memory();
    for (int i = 0; i != 200; ++i) add();
    for (int i = 0; i != 5000; ++i) {
        add();
        CHECK(texts.send(8) == "12345678");
    }
    texts.send_all();
    texts.queue.free_memory();
    CHECK(texts.queue.memory() == memory);
}

// Requests the stream for a READ whose reply may not be split and is not ready.
bool enter(Texts& texts, CompletionRecorder& recorder, Reply::Form form = Reply::Form::whole) {
    texts.queue.sequencer().enter(recorder, form);
    return texts.queue.sequencer().begin(recorder);
}
bool hold(Texts& texts, CompletionRecorder& recorder) {
    return texts.queue.sequencer().hold(recorder);
}
// The READ has all its staging memory, so it may wait for the stream and hold it.
void enter_served(Texts& texts, CompletionRecorder& recorder) {
    CHECK(enter(texts, recorder));
    texts.queue.sequencer().staged(recorder);
}

TEST_CASE("send queue: other items wait behind the holder, in order") {
    Texts texts;
    CompletionRecorder holder;
    CompletionRecorder other;
    texts.add(nullptr, "before ");
    const std::size_t memory = texts.queue.memory();
    enter_served(texts, holder);
    enter_served(texts, other);
    CHECK(hold(texts, holder));
    CHECK(hold(texts, holder));
    texts.add(nullptr, "A ");
    CHECK(texts.queue.memory() == memory);
    texts.add(&holder, "1 ");
    texts.add(&other, "B ", "b ", &other);
    CHECK(texts.send_all() == "before 1 ");
    CHECK_FALSE(texts.queue.empty());
    CHECK(texts.queue.size() == 2);
    texts.add(&holder, "2 ");
    texts.queue.leave(other);
    CHECK(texts.send_all() == "2 ");
    CHECK(other.sents == 0);
    texts.queue.leave(holder);
    CHECK(texts.send_all() == "A B b ");
    CHECK(other.sents == 1);
    CHECK(texts.queue.empty());
}

TEST_CASE("reply sequencer: waiting replies are resumed in order, until one holds the stream") {
    Texts texts;
    CompletionRecorder holder;
    CompletionRecorder waiting[4];
    enter_served(texts, holder);
    CHECK(hold(texts, holder));
    for (int i = 0; i != 4; ++i) {
        enter_served(texts, waiting[i]);
        waiting[i].on_resume = [&texts, &waiting, i] {
            texts.add(&waiting[i], std::to_string(i) + " ");
            if (i == 1) CHECK(hold(texts, waiting[i]));
        };
        CHECK_FALSE(hold(texts, waiting[i]));
        CHECK_FALSE(hold(texts, waiting[i]));  // repeated request
    }
    texts.add(nullptr, "behind ");
    // This reply does not need the stream any more, so it must not be resumed.
    texts.queue.leave(waiting[2]);
    texts.queue.leave(holder);
    CHECK(texts.send_all() == "behind 0 1 ");
    CHECK(waiting[3].resumes == 0);
    texts.queue.leave(waiting[1]);
    CHECK(texts.send_all() == "3 ");
    CHECK(waiting[0].resumes == 1);
    CHECK(waiting[1].resumes == 1);
    CHECK(waiting[2].resumes == 0);
    CHECK(waiting[3].resumes == 1);
}

TEST_CASE("reply sequencer: a whole reply begins after earlier chunked replies are complete") {
    Texts texts;
    ReplySequencer& sequencer = texts.queue.sequencer();
    CompletionRecorder chunks[2];
    CompletionRecorder whole;
    for (CompletionRecorder& each : chunks) CHECK(enter(texts, each, Reply::Form::chunks));
    CHECK(sequencer.takes_requests());
    CHECK_FALSE(enter(texts, whole));
    CHECK_FALSE(sequencer.takes_requests());
    whole.on_resume = [&] {
        if (sequencer.begin(whole)) texts.add(&whole, "whole ");
    };
    CHECK_FALSE(texts.queue.leave(chunks[0]));
    CHECK(whole.resumes == 1);
    CHECK_FALSE(texts.queue.leave(chunks[1]));
    CHECK(whole.resumes == 2);
    CHECK(texts.send_all() == "whole ");
    CHECK_FALSE(sequencer.takes_requests());
    CHECK(sequencer.staged(whole));
    CHECK(sequencer.takes_requests());
    CHECK_FALSE(sequencer.staged(whole));
    CHECK_FALSE(texts.queue.leave(whole));
}

TEST_CASE("reply sequencer: whole replies that come later enter one after another, in order") {
    Texts texts;
    ReplySequencer& sequencer = texts.queue.sequencer();
    CompletionRecorder first;
    CompletionRecorder later[3];
    CHECK(enter(texts, first));
    for (CompletionRecorder& each : later) {
        each.on_resume = [&] { CHECK(enter(texts, each)); };
        sequencer.wait_to_enter(each);
    }
    CompletionRecorder* needs_memory = &first;
    for (int entered = 0; entered != 3; ++entered) {
        sequencer.resume_entering();
        CHECK(later[entered].resumes == 0);
        CHECK(sequencer.staged(*needs_memory));
        sequencer.resume_entering();
        needs_memory = &later[entered];
        CHECK(needs_memory->resumes == 1);
        CHECK_FALSE(sequencer.takes_requests());
    }
    CHECK(sequencer.staged(*needs_memory));
    sequencer.resume_entering();
}

TEST_CASE("reply sequencer: a reply that needs memory holds the stream only if no other waits") {
    Texts texts;
    CompletionRecorder first;
    CompletionRecorder wants;
    enter_served(texts, first);
    CHECK(enter(texts, wants));
    CHECK_FALSE(hold(texts, wants));  // the first reply might wait for the stream and hold memory
    wants.on_resume = [&] {
        if (hold(texts, wants)) texts.add(&wants, "held ");
    };
    texts.add(&first, "first ");
    CHECK_FALSE(texts.queue.leave(first));
    CHECK(wants.resumes == 1);
    texts.add(nullptr, "behind ");
    CHECK(texts.send_all() == "first held ");
    CHECK(texts.queue.leave(wants));  // it has blocked further requests
    CHECK(wants.resumes == 1);
    CHECK(texts.send_all() == "behind ");
}

TEST_CASE("reply sequencer: a resumed reply that leaves immediately resumes the next one") {
    Texts texts;
    CompletionRecorder holder;
    CompletionRecorder waiting[3];
    enter_served(texts, holder);
    CHECK(hold(texts, holder));
    for (CompletionRecorder& each : waiting) {
        enter_served(texts, each);
        each.on_resume = [&texts, &each] {
            CHECK(hold(texts, each));
            texts.add(&each, "x");
            texts.queue.leave(each);
        };
        CHECK_FALSE(hold(texts, each));
    }
    texts.queue.leave(holder);
    CHECK(texts.send_all() == "xxx");
    for (const CompletionRecorder& each : waiting) CHECK(each.resumes == 1);
}

TEST_CASE("reply sequencer: a reply that waits again is resumed after the next reply") {
    Texts texts;
    CompletionRecorder holder;
    CompletionRecorder wants;
    CompletionRecorder answers;
    enter_served(texts, holder);
    CHECK(hold(texts, holder));
    enter_served(texts, answers);
    CHECK(enter(texts, wants));
    wants.on_resume = [&] {
        if (!hold(texts, wants)) return;
        texts.add(&wants, "second");
        texts.queue.leave(wants);
    };
    answers.on_resume = [&] {
        texts.add(&answers, "first ");
        texts.queue.leave(answers);
    };
    CHECK_FALSE(hold(texts, wants));
    CHECK_FALSE(hold(texts, answers));
    texts.queue.leave(holder);
    CHECK(wants.resumes == 2);
    CHECK(answers.resumes == 1);
    CHECK(texts.send_all() == "first second");
}

TEST_CASE("send queue: clear() notifies no reply") {
    Texts texts;
    CompletionRecorder holder;
    CompletionRecorder waiting;
    enter_served(texts, holder);
    enter_served(texts, waiting);
    CHECK(hold(texts, holder));
    CHECK_FALSE(hold(texts, waiting));
    texts.add(&holder, "1234", "5678", &holder);
    texts.add(nullptr, "behind");
    CHECK(texts.send(5) == "12345");
    texts.queue.clear();
    CHECK(texts.queue.empty());
    CHECK(texts.queue.nothing_to_send());
    texts.add(nullptr, "new");
    CHECK(texts.send_all() == "new");
    CHECK(holder.sents == 0);
    CHECK(waiting.resumes == 0);
    CHECK(hold(texts, waiting));
}

}  // namespace
}  // namespace gpunbd::server::test
