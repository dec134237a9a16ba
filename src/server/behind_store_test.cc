// When writes are acknowledged early, for whom, and what everybody sees then.
#include <random>

#include "core/testing.h"
#include "server/behind_testing.h"

namespace forebay::server::behind_store_tests {
namespace {

// ---- Off, on, by hint ----

TEST_F(Behind, ByDefaultAWriteIsInTheStoreWhenItIsAnswered) {
  make({});
  EXPECT_EQ(ok(write(0, "abcd")).verifier, 0u);
  EXPECT_EQ(writes(), 1u);
  EXPECT_FALSE(store_->used());
}

TEST_F(Behind, AHintTurnsItOnForAWrite) {
  make({});
  for (const bool proven : {false, true}) {
    Request r = data(Op::write, file_, at(0, 4));
    r.flags = kFlagBehind;
    EXPECT_EQ(ok(submit(std::move(r), "abcd")).verifier != 0, proven);
  }
  EXPECT_EQ(writes(), 1u);
}

TEST_F(Behind, AHintTurnsItOffForAWrite) {
  make();
  Request r = data(Op::write, file_, at(0, 4));
  r.flags = kFlagStable;
  EXPECT_EQ(ok(submit(std::move(r), "abcd")).verifier, 0u);
  EXPECT_EQ(writes(), 1u);
}

TEST_F(Behind, AnExportMayForbidIt) {
  make({.when = When::never});
  for (int i = 0; i < 2; ++i) {
    Request r = data(Op::write, file_, at(0, 4));
    r.flags = kFlagBehind;
    EXPECT_EQ(ok(submit(std::move(r), "abcd")).verifier, 0u);
  }
  EXPECT_EQ(writes(), 2u);
}

// ---- Age and amount ----

TEST_F(Behind, GoesOutMergedWhenItIsOldEnough) {
  make();
  for (uint64_t i : {3, 0, 2, 1}) write(i * 4, std::string(4, static_cast<char>('a' + i)), i);
  loop_.run_for(900ms);
  EXPECT_EQ(writes(), 0u);
  EXPECT_EQ(store_->status().files, 1u);
  loop_.run_for(200ms);
  EXPECT_EQ(writes(), 1u);
  EXPECT_EQ(store_->status().files, 0u);
  EXPECT_EQ(store_->status().memory, 0u);
  EXPECT_EQ(content(100), "aaaabbbbccccdddd");
}

TEST_F(Behind, EachFileHasItsAge) {
  make();
  const File other = create("g");
  prove(other);
  write(0, "aaaa");
  loop_.run_for(600ms);
  write(other, 0, "bbbb");
  loop_.run_for(500ms);
  EXPECT_EQ(writes(), 1u);
  loop_.run_for(600ms);
  EXPECT_EQ(writes(), 2u);
}

TEST_F(Behind, RewritesAreWrittenOnce) {
  make();
  for (int i = 0; i < 100; ++i) write(0, std::string(4096, static_cast<char>(i)));
  EXPECT_EQ(writes(), 0u) << "a hundred of them would be over half of the budget";
  EXPECT_LT(store_->status().memory, 3 * 4096u);
  loop_.run_for(2s);
  EXPECT_EQ(writes(), 1u);
  EXPECT_EQ(content(4096), std::string(4096, static_cast<char>(99)));
}

TEST_F(Behind, MemoryIsBoundedWithABackEndThatNeverAnswers) {
  make();
  hold_writes();
  std::vector<CallPtr> calls;
  for (uint64_t i = 0; i < 200; ++i) calls.push_back(write(i * 16_KiB, std::string(16_KiB, 'x')));
  EXPECT_LE(store_->status().memory, 1_MiB);
  const auto answered = std::ranges::count_if(calls, [](const auto& c) { return c->done(); });
  EXPECT_GT(answered, 32);
  EXPECT_LT(answered, 64);
  EXPECT_GT(store_->status().through, 100u);
  faults_->clear();
  faults_->release();
  loop_.run_for(2s);
  for (const auto& call : calls) EXPECT_TRUE(call->done() && *call->result);
  EXPECT_EQ(content(200 * 16_KiB), std::string(200 * 16_KiB, 'x'));
  EXPECT_EQ(store_->status().memory, 0u);
}

// Two clients write every second block, and one is behind.
TEST_F(Behind, WhenMemoryIsShortNeighboursAreWaitedForAndLongRunsAreWritten) {
  make();
  uint64_t ahead = 0;
  while (store_->status().memory <= 600_KiB) ok(write(8_KiB * ahead++, std::string(4_KiB, 'a')));
  EXPECT_EQ(writes(), 0u) << "nothing touches, and there is room";
  for (uint64_t i = 0; i < ahead / 2; ++i) {
    ok(write(8_KiB * i + 4_KiB, std::string(4_KiB, 'b'), 2));
  }
  EXPECT_LT(store_->status().memory, 600_KiB) << "what touches is written";
  EXPECT_GT(writes(), 0u);
  EXPECT_LT(writes(), ahead / 8) << "by few calls";
  ok(data(Op::commit, file_));
  EXPECT_EQ(store_->status().memory, 0u);
  std::string want(8_KiB * ahead - 4_KiB, '\0');
  for (uint64_t i = 0; i < ahead; ++i) {
    want.replace(8_KiB * i, 4_KiB, 4_KiB, 'a');
    if (i < ahead / 2) want.replace(8_KiB * i + 4_KiB, 4_KiB, 4_KiB, 'b');
  }
  EXPECT_EQ(content(want.size()), want);
}

TEST_F(Behind, WhenMemoryIsShortAndNothingTouchesAllOfItIsWritten) {
  make();
  const uint64_t through = store_->status().through;
  for (uint64_t i = 0; i < 1000; ++i) ok(write(8_KiB * i, std::string(4_KiB, 'a')));
  EXPECT_GT(writes(), 0u);
  EXPECT_EQ(store_->status().through, through) << "early enough";
}

TEST_F(Behind, ManyFilesWithALittleEachAreWrittenInTime) {
  make();
  std::vector<File> files;
  for (int i = 0; i < 64; ++i) {
    files.push_back(create("file" + std::to_string(i)));
    prove(files.back());
  }
  const uint64_t through = store_->status().through;
  for (uint64_t i = 0; i < 64; ++i) {
    for (const File& file : files) ok(write(file, 4_KiB * i, std::string(4_KiB, 'x')));
  }
  EXPECT_EQ(store_->status().through, through);
}

TEST_F(Behind, TinyPiecesAreWrittenInTime) {
  make();
  const uint64_t through = store_->status().through;
  for (uint64_t i = 0; i < 20'000; ++i) ok(write(16 * i, "12345678"));
  EXPECT_EQ(store_->status().through, through);
}

TEST_F(Behind, ACommitWaitsForWhatARelievedFileStillHas) {
  make();
  hold_writes();
  uint64_t n = 0;
  while (store_->status().memory <= 600_KiB) ok(write(4_KiB * n++, std::string(4_KiB, 'a')));
  ok(write(1_GiB, "far away"));
  const CallPtr commit = submit(data(Op::commit, file_), {});
  faults_->clear();
  faults_->release();
  ok(commit);
  EXPECT_EQ(store_->status().memory, 0u);
  const CallPtr far = read(1_GiB, 8);
  ok(far);
  EXPECT_EQ(far->bytes, "far away");
}

TEST_F(Behind, AWriteLargerThanTheBudgetGoesThrough) {
  make({.when = When::always, .memory = 64_KiB});
  EXPECT_EQ(ok(write(0, std::string(100'000, 'x'))).verifier, 0u);
}

// ---- Rights ----

TEST_F(Behind, NothingIsAcknowledgedForARightThatTheStoreHasNotAccepted) {
  make();
  File forged = file_;
  forged.right.bytes = std::string(file_.right.bytes.size(), 'x');
  EXPECT_EQ(write(forged, 0, "evil")->error(), EBADF);
  EXPECT_EQ(write(forged, 0, "evil")->error(), EBADF) << "and not the second time either";
  Caller other = *caller_;
  other.uid += 1;
  Request r = data(Op::write, file_, at(0, 4));
  r.caller = std::make_shared<const Caller>(other);
  EXPECT_EQ(submit(std::move(r), "evil")->error(), EACCES);
}

TEST_F(Behind, NothingIsGivenOutForARightThatTheStoreHasNotAccepted) {
  make();
  write(0, "secret");
  Request r = data(Op::read, file_, at(0, 6));
  r.right.bytes = std::string(file_.right.bytes.size(), 'x');
  EXPECT_EQ(submit(std::move(r), "??????")->error(), EBADF);
}

TEST_F(Behind, AClosedRightIsProvedAgain) {
  make();
  ok(data(Op::close, file_));
  EXPECT_EQ(ok(write(0, "abcd")).verifier, 0u);
  EXPECT_NE(ok(write(0, "abcd")).verifier, 0u);
}

// ---- What is seen ----

TEST_F(Behind, ReadsOfDirtyBytesAreServedFromMemory) {
  make();
  write(0, "aaaa");
  write(4, "bbbb");
  const CallPtr call = read(2, 4);
  EXPECT_EQ(ok(call).count, 4u);
  EXPECT_EQ(call->bytes, "aabb");
  EXPECT_EQ(writes(), 0u);
  EXPECT_EQ(faults_->calls(Op::read), 0u);
}

TEST_F(Behind, ReadsOfSomeDirtyBytesWaitForThem) {
  make();
  write(2, "bb");
  EXPECT_EQ(content(100), "..bb");
  EXPECT_EQ(writes(), 1u);
}

TEST_F(Behind, AHoleBeforeDirtyBytesIsNoEndOfFile) {
  make();
  write(100, "end");
  EXPECT_EQ(ok(read(0, 4)).count, 4u);
  EXPECT_EQ(writes(), 0u) << "nothing was in its way";
  const CallPtr hole = read(0, 50);
  EXPECT_EQ(ok(hole).count, 50u);
  EXPECT_EQ(hole->bytes, "...." + std::string(46, '\0'));
  EXPECT_EQ(ok(read(200, 10)).count, 0u);
}

TEST_F(Behind, ReadsSeeWhatIsOnItsWay) {
  make();
  write(0, "aaaa");
  hold_writes();
  const CallPtr commit = submit(data(Op::commit, file_), {});
  const CallPtr from_memory = read(0, 4);
  EXPECT_TRUE(from_memory->done());
  EXPECT_EQ(from_memory->bytes, "aaaa");
  write(2, "bb");
  const CallPtr both = read(0, 4);
  EXPECT_EQ(both->bytes, "aabb") << "newer bytes over those on their way";
  EXPECT_FALSE(commit->done());
  faults_->clear();
  faults_->release();
  EXPECT_TRUE(commit->done());
  EXPECT_EQ(content(10), "aabb");
}

TEST_F(Behind, SizesAndTimesAreThoseAfterTheWrites) {
  make();
  write(0, std::string(1000, 'x'));
  EXPECT_EQ(ok(request(Op::getattr, file_.handle)).attr.size, 1000u);
  write(1000, std::string(1000, 'x'));
  EXPECT_EQ(ok(request(Op::lookup, root_, "f")).attr.size, 2000u);
  write(2000, std::string(1000, 'x'));
  Request list = request(Op::readdir, root_);
  list.flags = kFlagPlus;
  EXPECT_EQ(ok(std::move(list)).entries.front().attr.size, 3000u);
  write(3000, std::string(1000, 'x'));
  Request open = request(Op::open, file_.handle);
  open.access = Access::read;
  EXPECT_EQ(ok(std::move(open)).attr.size, 4000u);
  write(4000, std::string(1000, 'x'));
  Request create = request(Op::create, root_, "f");
  EXPECT_EQ(ok(std::move(create)).attr.size, 5000u);
  write(5000, std::string(1000, 'x'));
  Request set = request(Op::setattr, file_.handle);
  set.set.what = SetAttr::kMtime;
  set.set.mtime.seconds = 4711;
  EXPECT_EQ(ok(std::move(set)).attr.size, 6000u);
  loop_.run_for(2s);
  EXPECT_EQ(ok(request(Op::getattr, file_.handle)).attr.mtime.seconds, 4711);
}

TEST_F(Behind, ATruncationTakesWhatWasAcknowledgedBeforeIt) {
  make();
  write(0, "0123456789");
  Request cut = data(Op::resize, file_);
  cut.length = Length(3);
  EXPECT_EQ(ok(std::move(cut)).attr.size, 3u);
  loop_.run_for(2s);
  EXPECT_EQ(content(100), "012");
}

TEST_F(Behind, ACreateThatTruncatesTakesWhatWasAcknowledgedBeforeIt) {
  make();
  write(0, "0123456789");
  create("f", kFlagTruncate);
  loop_.run_for(2s);
  EXPECT_EQ(content(100), "");
}

// The round ends while the create is under way, after it has truncated.
TEST_F(Behind, ACreateThatTruncatesWhileARoundIsUnderWay) {
  make();
  write(0, "0123456789");
  hold_writes();
  const CallPtr commit = submit(data(Op::commit, file_), {});
  faults_->clear();
  faults_->add({.op = Op::create, .action = Action::hold});
  Request again = request(Op::create, root_, "f");
  again.flags = kFlagTruncate;
  again.access = Access::both;
  const CallPtr truncating = submit(std::move(again), {});
  faults_->release();  // the write and the create, in this order; or
  EXPECT_TRUE(commit->done() && truncating->done());
  EXPECT_EQ(truncating->reply().attr.size, 0u);
  EXPECT_EQ(content(100), "");
}

TEST_F(Behind, AWriteThatGoesThroughComesAfterWhatItOverlaps) {
  make();
  write(0, "aaaaaaaa");
  hold_writes();
  Request r = data(Op::write, file_, at(2, 2));
  r.flags = kFlagStable;
  const CallPtr stable = submit(std::move(r), "bb");
  EXPECT_EQ(faults_->held(), 1u) << "only the older bytes are on their way";
  EXPECT_FALSE(stable->done());
  faults_->clear();
  faults_->release();
  EXPECT_TRUE(stable->done());
  EXPECT_EQ(content(8), "aabbaaaa");
}

TEST_F(Behind, AnUnlinkedFileIsWrittenAsWell) {
  make();
  write(0, "abcd");
  ok(request(Op::remove, root_, "f"));
  loop_.run_for(2s);
  EXPECT_EQ(store_->status().lost_bytes, 0u);
  EXPECT_EQ(content(10), "abcd");
}

// ---- At random, against a plain string ----

TEST_F(Behind, AgreesWithAString) {
  std::mt19937_64 random(test_seed());
  const auto below = [&](uint64_t n) { return random() % n; };
  for (int round = 0; round < 30; ++round) {
    loop_.run_for(10s);
    make({.when = When::always, .memory = 8192 + below(100'000), .age = 20ms});
    std::string oracle = "....";
    for (int i = 0; i < 300; ++i) {
      const uint64_t offset = below(5000), length = 1 + below(below(2) ? 50 : 2000);
      switch (below(9)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          std::vector<Extent> list{{Offset(offset), Length(length)}};
          if (below(3) == 0) list.push_back({Offset(below(5000)), Length(1 + below(500))});
          const Extents where = Extents::make(std::move(list)).value();
          std::string bytes(where.total().value, static_cast<char>('a' + below(26)));
          uint64_t place = 0;
          for (ExtentCursor c(where); !c.done();) {
            const Extent e = c.take(where.total());
            oracle.resize(std::max(oracle.size(), e.end().value));
            oracle.replace(e.offset.value, e.length.value, bytes, place, e.length.value);
            place += e.length.value;
          }
          Request r = data(Op::write, file_, where);
          if (below(5) == 0) r.flags = kFlagStable;
          ASSERT_EQ(ok(submit(std::move(r), std::move(bytes), below(3))).count, place);
          break;
        }
        case 4:
        case 5: {
          const CallPtr call = read(offset, length);
          const uint64_t count = ok(call).count;
          const std::string want =
              offset < oracle.size() ? oracle.substr(offset, length) : std::string();
          ASSERT_EQ(call->bytes.substr(0, count), want);
          break;
        }
        case 6: {
          Request r = data(Op::resize, file_);
          r.length = Length(offset);
          ASSERT_EQ(ok(std::move(r)).attr.size, offset);
          oracle.resize(offset);
          break;
        }
        case 7:
          ASSERT_EQ(ok(request(Op::lookup, root_, "f")).attr.size, oracle.size());
          break;
        default:
          if (below(3) == 0) ok(data(Op::commit, file_));
          loop_.run_for(std::chrono::milliseconds(below(30)));
      }
    }
    ASSERT_EQ(content(100'000), oracle);
  }
}

}  // namespace
}  // namespace forebay::server::behind_store_tests
