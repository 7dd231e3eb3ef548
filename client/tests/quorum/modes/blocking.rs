//! Tests of the blocking API, which has the names of the async one.

use palisade_client::{ErrorKind, Released, blocking};

use crate::fixture::Nodes;

#[test]
fn the_blocking_face_has_the_same_names() {
    let nodes = Nodes::start(3);
    let locks = blocking::Client::new(nodes.addresses()).unwrap();
    locks.connect().unwrap();
    let lock = locks.rw_lock("k");
    let writing = lock.write().unwrap();
    let token = writing.token();
    assert_eq!(lock.try_read().unwrap_err().kind(), ErrorKind::Contended);
    let reading = writing.downgrade().unwrap();
    assert_eq!(reading.token(), token);
    let beside = lock.read().unwrap();
    assert_eq!(lock.try_write().unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!((reading.release(), beside.release()), (Released::Released, Released::Released));
    drop(lock.write().unwrap());
    let uploads = locks.semaphore("k", 2);
    let (one, two) = (uploads.acquire().unwrap(), uploads.acquire().unwrap());
    assert_eq!(one.number() + two.number(), 3);
    assert!(one.is_valid() && !two.is_lost());
    assert_eq!(uploads.try_acquire().unwrap_err().kind(), ErrorKind::Contended);
    drop(one);
    assert_eq!(two.release(), Released::Released);
    locks.close().unwrap();
}
